"""The resources of this machine: cores, memory, and files that are replaced atomically."""
