"""Rollout engines, one module each, which defines ``engine(sampling, policy, shared=...)``: who samples."""
