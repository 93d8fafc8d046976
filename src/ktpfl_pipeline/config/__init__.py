"""The configuration under conf/: schema, parsing, checks, reading of files, and results of tunings."""
