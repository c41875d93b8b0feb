"""Benchmarks: every figure is a ratio of medians, interleaved in one run."""
