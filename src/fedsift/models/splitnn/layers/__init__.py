"""The forms of the layer between embeddings and top model."""
