"""The blocks of a pipeline, and the template that joins them into one per experiment."""
