"""Our side: ``python -m benchmarks.trainers.ours SEED STEPS KL``."""

import sys
import tempfile

from benchmarks.trainers.common import Turns, recipe
from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.train.run import loop
from rl_sentinel.train.run.run_context import Callbacks


def main() -> None:
    """Run the loop, one step per turn."""
    seed, steps, kl = sys.argv[1:]
    turns = Turns()
    with tempfile.TemporaryDirectory() as folder:
        wanted = recipe(folder, seed=int(seed), steps=int(steps), kl=float(kl))

        def step(metrics: object, _timing: object) -> None:
            assert isinstance(metrics, dict)  # noqa: S101 - the loop's
            turns.end_step({"accuracy": metrics["accuracy"], "length": metrics["response_length"]})

        loop.train(wanted, cache=cached_folder, callbacks=Callbacks(step=step))


if __name__ == "__main__":
    main()
