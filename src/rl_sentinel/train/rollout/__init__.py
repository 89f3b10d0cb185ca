"""Sampling: environments, rollout engines, and the trajectories that come from both."""
