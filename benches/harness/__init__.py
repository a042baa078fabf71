"""The benchmark harness: what every measured program shares, and what the runner is made of."""
