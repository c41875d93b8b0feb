"""The parts of a report's page: markup, charts, and one file for each kind of result."""
