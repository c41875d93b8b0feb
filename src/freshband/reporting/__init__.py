"""Reports, pictures and tables of models and result files; nothing here runs a policy."""
