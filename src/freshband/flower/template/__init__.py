"""A ready Flower app: handwritten digits, learned over channels nobody can trust."""
