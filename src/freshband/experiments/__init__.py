"""Experiments, such as the paper's figures: one per file, each at two scales."""
