"""Whether PPO's numbers are those of a peer, and of slow forms of the same formulas."""
