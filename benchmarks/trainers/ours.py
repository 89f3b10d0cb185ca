"""Our side: ``python -m benchmarks.trainers.ours COMPARISON``, a JSON object."""

import tempfile

from benchmarks.trainers.common import Comparison, Turns
from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.train.run import loop
from rl_sentinel.train.run.run_context import Callbacks


def main() -> None:
    """Run the loop, one step per turn."""
    comparison = Comparison.of_arguments()
    turns = Turns(comparison.device)
    with tempfile.TemporaryDirectory() as folder:

        def step(metrics: object, _timing: object) -> None:
            assert isinstance(metrics, dict)  # noqa: S101 - the loop's
            turns.end_step({"accuracy": metrics["accuracy"], "length": metrics["response_length"]})

        loop.train(comparison.load_recipe(folder), cache=cached_folder, callbacks=Callbacks(step=step))


if __name__ == "__main__":
    main()
