"""Environments, one module each; each defines a dataclass ``Environment``, as in ``rollout.interfaces``."""
