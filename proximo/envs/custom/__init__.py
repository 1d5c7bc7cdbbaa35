"""Environments of a user: where they come from, and checks of all that they have and return."""
