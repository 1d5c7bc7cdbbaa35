"""The simplifications of partial evaluation, one per file."""
