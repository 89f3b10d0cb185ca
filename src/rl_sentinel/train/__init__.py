"""A small trainer that computes its training signal with ``rl_sentinel.signal`` only; read ``run/loop.py`` first."""
