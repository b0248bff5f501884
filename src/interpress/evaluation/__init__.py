"""What a network's output means, and how much two networks agree."""
