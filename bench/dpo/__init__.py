"""Experiments and comparisons of direct preference optimisation."""
