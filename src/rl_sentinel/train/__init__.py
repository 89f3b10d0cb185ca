"""A small trainer whose training signal is ``rl_sentinel.signal`` and nothing else; ``loop`` is read first."""
