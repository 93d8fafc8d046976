"""Code that several methods use: parts of a model, a shared head, and mutual learning."""
