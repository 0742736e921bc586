"""Filters: columns one by one."""
