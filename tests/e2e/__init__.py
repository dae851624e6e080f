"""Whole programs in a real cluster."""
