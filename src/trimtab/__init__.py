"""Trimtab trains language models from AI feedback and tells when, since when and why that training goes wrong."""

__version__ = "0.1.0"
