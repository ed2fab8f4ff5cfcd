"""How fast and how small PPO is, beside a peer."""
