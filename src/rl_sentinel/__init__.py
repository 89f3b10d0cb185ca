"""RL-Sentinel: audit, compute and guard the training signal of LLM reinforcement learning."""

import sys

__version__ = "0.1.0"

if sys.version_info < (3, 11):  # noqa: UP036 - an installer refuses; this is for running from the source tree
    _WORDS = "rl-sentinel: Python is %d.%d, expected 3.11 or newer: run it with another interpreter"
    _WORDS = _WORDS % sys.version_info[:2]
    if sys.argv[:1] == ["-m"]:
        sys.stderr.write(_WORDS + "\n")
        raise SystemExit(2)
    raise ImportError(_WORDS)
