"""Reporting: pictures made from models and result files; nothing here simulates a policy."""
