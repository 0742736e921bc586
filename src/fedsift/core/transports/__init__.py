"""Ways of carrying request bytes to parties and reply bytes back."""
