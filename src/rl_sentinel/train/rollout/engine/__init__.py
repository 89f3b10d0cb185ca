"""Rollout engines, one module each; each defines ``build_engine(settings, policy, shared=...)``."""
