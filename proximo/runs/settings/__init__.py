"""From arguments to a complete configuration, or every reason why there is none."""
