"""MUSE."""
