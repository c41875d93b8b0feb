"""``python -m freshband`` is ``freshband``."""

from freshband.cli.app import main

if __name__ == "__main__":
    main()
