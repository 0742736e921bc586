"""Boosting on shares in which nobody reads a sum: the best cut is found by comparisons on shares."""
