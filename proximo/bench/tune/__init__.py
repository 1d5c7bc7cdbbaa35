"""`proximo tune`."""
