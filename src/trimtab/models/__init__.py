"""Loading, roles on a shared or separate trunk, log-probabilities and generation."""
