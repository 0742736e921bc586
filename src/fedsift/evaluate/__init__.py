"""Scoring a selection honestly."""
