"""Shared by several methods: parts of a model, a shared head, step selection by validation."""
