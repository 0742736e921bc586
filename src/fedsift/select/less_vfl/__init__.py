"""LESS-VFL and the lasso networks."""
