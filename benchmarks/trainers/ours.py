"""Our side: ``python -m benchmarks.trainers.ours SEED STEPS PRICE``."""

import sys
import tempfile

from benchmarks.trainers.common import Turns, recipe
from rl_sentinel.audit.cache import kept
from rl_sentinel.train.run import loop


def main() -> None:
    """Run the loop, a step at each turn."""
    seed, steps, price = sys.argv[1:]
    turns = Turns()
    with tempfile.TemporaryDirectory() as folder:
        wanted = recipe(folder, seed=int(seed), steps=int(steps), price=float(price))

        def step(seen: object, _spent: object) -> None:
            assert isinstance(seen, dict)  # noqa: S101 - of the loop
            turns.done({"accuracy": seen["accuracy"], "length": seen["response_length"]})

        loop.train(wanted, cache=kept, callbacks=loop.Callbacks(step=step))


if __name__ == "__main__":
    main()
