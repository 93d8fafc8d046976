"""Which client gets which samples, saved as indices."""
