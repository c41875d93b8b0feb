"""Change detectors: whether a channel's success rate changed, and since when."""
