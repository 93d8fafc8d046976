"""Who gets which samples, saved as indices."""
