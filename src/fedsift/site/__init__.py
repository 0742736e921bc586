"""A site: a table under its organisation's own rules."""
