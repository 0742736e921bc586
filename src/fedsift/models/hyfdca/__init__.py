"""HyFDCA: dual coordinate ascent over parties of any shape."""
