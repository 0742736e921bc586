"""Encryption, oblivious functions, sealed boxes and noise. A leaf: it knows errors and messages only."""
