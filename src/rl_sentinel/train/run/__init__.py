"""A run: the training loop, its directory and checkpoints, processes, random numbers, twin runs."""
