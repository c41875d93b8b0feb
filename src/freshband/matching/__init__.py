"""Matchings: which client gets which of the chosen channels, one rule per file."""
