"""One file per way to run a verb on many clients."""
