"""What analysts ask before and after a selection: correlation, variance inflation, p-values, stability of columns."""
