"""Additively homomorphic encryption on one engine of modular products."""
