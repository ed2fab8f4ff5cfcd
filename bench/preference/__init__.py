"""Measurements of the preference model."""
