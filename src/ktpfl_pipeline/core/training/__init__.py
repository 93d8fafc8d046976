"""Random changes of training images, and differential privacy."""
