"""Rollout correction: what samples of another policy count for; one module for each kind of answer."""
