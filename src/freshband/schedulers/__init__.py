"""Schedulers: which M of N channels to use this round, one policy per file."""
