"""Reports, pictures and tables of models and result files; no policy is run here."""
