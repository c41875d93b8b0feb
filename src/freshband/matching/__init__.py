"""Matchings: which client gets which of the chosen channels, one rule a file."""
