"""The command line: ``freshband``, one command per file."""
