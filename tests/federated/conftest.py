"""What is imported here is no test."""

collect_ignore = ["warmed.py"]  # it works when it is imported
