"""What a run writes and prints while it trains."""
