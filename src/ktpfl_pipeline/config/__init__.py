"""What is under conf/: its schema, parsing, checks, files, and what tunings leave."""
