"""RL-Sentinel: audit, compute and guard the training signal of LLM reinforcement learning."""

__version__ = "0.1.0"
