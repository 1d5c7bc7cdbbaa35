"""Runs that are followed while they train, from their files alone: as a page and on a terminal."""
