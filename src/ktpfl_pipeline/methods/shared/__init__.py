"""What several methods share, and none owns: parts of a model, a head for all, a step as far as validation agrees."""
