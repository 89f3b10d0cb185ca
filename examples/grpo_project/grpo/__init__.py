"""A small GRPO code base: advantages, the loss of a policy, and its KL penalty."""
