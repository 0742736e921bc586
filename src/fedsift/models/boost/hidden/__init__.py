"""Boosting on shares: neither side sees the other's rows or columns, a neutral coordinator deals and chooses cuts."""
