"""What stands under conf/: its schema, parsing, checks and files."""
