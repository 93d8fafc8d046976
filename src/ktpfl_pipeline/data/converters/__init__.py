"""Converters of other datasets to the arrays of this project's `.npz` files, for `ktpfl convert`.

Each function ``convert`` returns arrays by the names that the source `npz` reads.
"""
