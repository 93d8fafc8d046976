"""Shared by several methods: parts of a model, a shared head, mutual learning."""
