"""Scores of single columns under encrypted labels: what several methods ask for."""
