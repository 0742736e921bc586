"""Protocols with the behaviour that was mended, kept for the attacks: what they find here, they must not find there."""
