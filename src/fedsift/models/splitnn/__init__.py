"""Split networks."""
