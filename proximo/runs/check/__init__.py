"""`proximo check-env` and proximo.check_env."""
