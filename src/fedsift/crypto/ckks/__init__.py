"""CKKS: encrypted vectors of real numbers."""
