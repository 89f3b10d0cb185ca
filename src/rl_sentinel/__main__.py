"""``python -m rl_sentinel`` is ``rl-sentinel``."""

from rl_sentinel.cli.main import run

if __name__ == "__main__":
    run()
