"""Change detectors: did a channel's success rate change, and since when?"""
