"""Federations in the forms of others, as the arrays of this project's `.npz` files: `ktpfl convert`.

Each function returns {array: values}, by the names that the source `npz` reads.
"""
