"""The names of the two apps; their code is installed at both ends."""
