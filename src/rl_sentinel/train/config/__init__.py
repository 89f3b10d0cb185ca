"""The recipe: its keys, the functions that its names refer to, and the checks before a run starts."""
