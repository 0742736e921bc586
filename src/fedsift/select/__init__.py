"""Selectors: a folder or a file a method."""
