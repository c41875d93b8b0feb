"""The command line: ``freshband``, one command a file."""
