"""Rollout correction for samples of another policy: importance weights, their bounds, rejection, trust."""
