"""What every trainer needs: precision, optimiser groups, checkpoints and named random streams."""
