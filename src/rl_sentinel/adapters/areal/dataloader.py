"""AReaL's data loaders: how often all ranks together draw each sample in an epoch."""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Inputs

CREATE = "areal.utils.dataloader.create_dataloader"
TRAINING, VALIDATION = "areal.api.cli_args.TrainDatasetConfig", "areal.api.cli_args.ValidDatasetConfig"

#: Number of ranks that share a data set, and the batch size over all ranks.
RANKS, BATCH = 2, 4

_CALLER = "areal/trainer/rl_trainer.py, _create_dataloader: rank and world size of the data-parallel group"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The samples of an epoch, for training and for validation."""
    if not target.has(CREATE):
        return
    if failing := target.fails(CREATE):
        yield Unbound(CREATE, "batch", failing)
        return
    training = next((path for path in (TRAINING, "areal.api.cli_args.DatasetConfig") if target.has(path)), TRAINING)
    for name, config in (("training", training), ("validation", VALIDATION)):
        if target.has(config):
            yield from bindable(target, _loader(name, config))


class Loader:
    """A double of torchdata's stateful data loader: torch's loader with the sampler and batches of AReaL."""

    def __init__(self, dataset: Any, **options: Any) -> None:  # noqa: ANN401 - a data set, options of a loader
        """Pass the options to torch's loader, on which torchdata's is built."""
        loader: Any = importlib.import_module("torch.utils.data").DataLoader
        self.batches: Any = loader(dataset, **options)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches of samples."""
        return iter(self.batches)


def uses_in_epoch(create: Callable[..., Any], config: Callable[..., Any], rows: int, training: bool) -> list[float]:  # noqa: FBT001 - training or validation
    """How often all ranks together draw each sample; 1 is correct.

    Training drops the samples after the last full batch: one that is not drawn counts 1.
    """
    dataset_config = config(path="data", type="rl", batch_size=BATCH, num_workers=0, shuffle=False)
    with replaced_globals(create.__globals__, StatefulDataLoader=Loader):
        loaders = [create(list(range(rows)), rank, RANKS, dataset_config) for rank in range(RANKS)]
        draws = Counter(sample for loader in loaders for batch in loader for sample in batch)
    full = rows - rows % BATCH if training else rows
    return [float(draws[row]) + float(row >= full) for row in range(rows)]


def _has_full_batch(inputs: Inputs) -> str:
    return f"an epoch of training has no full batch of {BATCH}" if inputs.batch.rows < BATCH else ""


def _loader(name: str, config: str) -> Boundary:
    step = Step(
        call=uses_in_epoch,
        name="uses",
        arguments={
            "create": Constant(Function(CREATE)),
            "config": Constant(Function(config)),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "training": Knob("training"),
        },
        produced_by={"rows": _CALLER},
    )
    return Boundary(
        path=CREATE,
        stage="batch",
        steps=(step,),
        reads=frozenset({"group"}),
        outputs={"uses": Output("B", "samples", "uses", at=Use("uses"), form=PerRow("list"))},
        settings={name: {"training": name == "training"}},
        reach=f"every run with {'train' if name == 'training' else 'valid'}_dataset, on several data-parallel ranks",
        requires=(_has_full_batch,) if name == "training" else (),
    )
