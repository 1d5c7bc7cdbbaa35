"""`proximo eject`: one standalone file for a variant, by partial evaluation of the library for its configuration."""
