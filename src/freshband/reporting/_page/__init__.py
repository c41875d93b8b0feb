"""The parts of a report's page: templates, charts, and one file for each kind of result."""
