"""Our trainer compared with another one: the same weights, prompts and settings, one step each in turn."""
