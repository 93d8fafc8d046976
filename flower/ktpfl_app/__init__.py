"""What the app needs of an installed ktpfl_pipeline."""
