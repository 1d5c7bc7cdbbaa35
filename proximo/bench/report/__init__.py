"""`proximo report`."""
