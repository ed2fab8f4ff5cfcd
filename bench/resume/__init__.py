"""What a run that was killed is worth afterwards."""
