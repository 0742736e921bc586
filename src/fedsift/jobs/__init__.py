"""Job files and what becomes of them."""
