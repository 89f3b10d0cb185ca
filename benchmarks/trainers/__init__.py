"""Our trainer beside another one: the same weights, prompts and settings, a step each in turn."""
