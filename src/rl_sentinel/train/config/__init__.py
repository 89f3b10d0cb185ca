"""What a recipe says: its keys, the functions that its names stand for, and the checks before a run starts."""
