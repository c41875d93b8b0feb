"""Experiments, such as the paper's figures: one per file, each in two scales."""
