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
#: Classes of the options of a data set for training and for validation, which earlier releases share.
_OPTIONS = "areal.api.cli_args"
TRAINING, VALIDATION, SHARED = (f"{_OPTIONS}.{name}DatasetConfig" for name in ("Train", "Valid", ""))

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
    for name, config in (("training", TRAINING), ("validation", VALIDATION)):
        known = next((path for path in (config, SHARED) if target.has(path)), "")
        if known:
            yield from bindable(target, _loader(name, known))


class Loader:
    """A double of torchdata's stateful data loader: torch's loader with the sampler and batches of AReaL."""

    def __init__(self, dataset: Any, **options: Any) -> None:  # noqa: ANN401 - a data set, options of a loader
        """Pass the options to torch's loader, on which torchdata's is built."""
        loader: Any = importlib.import_module("torch.utils.data").DataLoader
        self.batches: Any = loader(dataset, **options)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches of samples."""
        return iter(self.batches)


def uses_in_epoch(
    create: Callable[..., Any],
    config: Callable[..., Any],
    rows: int,
    training: bool,  # noqa: FBT001 - training or validation
) -> dict[str, list[float]]:
    """How often all ranks together draw each sample, and whether they do; 1 is correct.

    Training drops the samples after the last full batch: one that is not drawn counts 1.
    """
    dataset_config = config(path="data", type="rl", batch_size=BATCH, num_workers=0, shuffle=False)
    with replaced_globals(create.__globals__, StatefulDataLoader=Loader):
        loaders = [create(list(range(rows)), rank, RANKS, dataset_config) for rank in range(RANKS)]
        draws = Counter(sample for loader in loaders for batch in loader for sample in batch)
    full = rows - rows % BATCH if training else rows
    uses = [float(draws[row]) + float(row >= full) for row in range(rows)]
    return {"uses": uses, "drawn": [min(count, 1.0) for count in uses]}


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
        outputs={
            output: Output("B", "samples", "uses", at=Use("uses")[output], form=PerRow("list"))
            for output in ("uses", "drawn")
        },
        settings={name: {"training": name == "training"}},
        reach=f"every run with {'train' if name == 'training' else 'valid'}_dataset, on several data-parallel ranks",
        requires=(_has_full_batch,) if name == "training" else (),
    )
