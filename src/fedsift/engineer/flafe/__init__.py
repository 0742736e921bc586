"""Vertical- and Hybrid-FLAFE."""
