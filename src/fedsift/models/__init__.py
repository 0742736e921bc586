"""Models that are trained over parties."""
