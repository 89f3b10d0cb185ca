"""Rollout engines, one module each: who samples, given prompts as token ids."""
