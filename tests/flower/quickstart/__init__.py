"""A Flower app as its quickstart writes them, with BatchNorm; and the same with a scheduler."""
