"""AReaL's data loaders: how often all ranks together draw each sample per epoch, and the order."""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

CREATE = "areal.utils.dataloader.create_dataloader"
CYCLE = "areal.utils.data.cycle_dataloader"
#: Classes of the options of a data set for training and for validation, which earlier releases share.
_OPTIONS = "areal.api.cli_args"
TRAINING, VALIDATION, SHARED = (f"{_OPTIONS}.{name}DatasetConfig" for name in ("Train", "Valid", ""))

#: Number of ranks that share a data set, and the batch size over all ranks.
RANKS, BATCH = 2, 4

_CALLER = "areal/trainer/rl_trainer.py, _create_dataloader: rank and world size of the data-parallel group"

_SHUFFLES = claims(
    "cli_args.py, DatasetConfig.shuffle: whether to shuffle the dataset; torch, DistributedSampler: without set_epoch, "
    "each epoch has the order of the first",
    knobs={"epoch": (0, 1)},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the samples of an epoch, for training and for validation."""
    if not target.has(CREATE):
        return
    if failing := target.fails(CREATE):
        yield Unbound(CREATE, "batch", failing)
        return
    for name, config in (("training", TRAINING), ("validation", VALIDATION)):
        known = next((path for path in (config, SHARED) if target.has(path)), "")
        if known:
            yield from bindable(target, _loader(name, known))
        if known and name == "training" and target.has(CYCLE):
            yield from bindable(target, _cycle(known))


class Loader:
    """A fake of torchdata's stateful data loader: torch's loader with the sampler and batches of AReaL."""

    def __init__(self, dataset: Any, **options: Any) -> None:  # noqa: ANN401 - a data set, options of a loader
        """Pass the options to torch's loader; torchdata's loader is built on that class."""
        loader: Any = importlib.import_module("torch.utils.data").DataLoader
        self.batches: Any = loader(dataset, **options)
        self.sampler = self.batches.sampler

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches of samples."""
        return iter(self.batches)


def uses_in_epoch(
    create: Callable[..., Any],
    config: Callable[..., Any],
    rows: int,
    training: bool,  # noqa: FBT001 - training or validation
) -> dict[str, list[float]]:
    """Draw one epoch on all ranks; return the draws of each sample, and whether it is drawn at all.

    1 is correct for both. Training drops the samples after the last full batch, so one additional draw is counted for
    each of these samples.
    """
    dataset_config = config(path="data", type="rl", batch_size=BATCH, num_workers=0, shuffle=False)
    with replaced_globals(create.__globals__, StatefulDataLoader=Loader):
        loaders = [create(list(range(rows)), rank, RANKS, dataset_config) for rank in range(RANKS)]
        draws = Counter(sample for loader in loaders for batch in loader for sample in batch)
    full = rows - rows % BATCH if training else rows
    uses = [float(draws[row]) + float(row >= full) for row in range(rows)]
    return {"uses": uses, "drawn": [min(count, 1.0) for count in uses]}


def places_in_epoch(
    create: Callable[..., Any], cycle: Callable[..., Any], config: Callable[..., Any], rows: int, epoch: int
) -> list[float]:
    """The position of each sample in an epoch of a shuffled data set, or -1 if it is not drawn."""
    dataset_config = config(path="data", type="rl", batch_size=BATCH, num_workers=0, shuffle=True)
    with replaced_globals(create.__globals__, StatefulDataLoader=Loader):
        loader = create(list(range(rows)), 0, 1, dataset_config)
        batches = islice(cycle(loader), epoch * len(loader), (epoch + 1) * len(loader))
        drawn = [sample for batch in batches for sample in batch]
    return [float(drawn.index(row)) if row in drawn else -1.0 for row in range(rows)]


def has_full_batch(inputs: Inputs) -> str:
    """The reason to skip a batch without a full batch of a loader; empty otherwise."""
    return f"an epoch of training has no full batch of {BATCH}" if inputs.batch.rows < BATCH else ""


def _loader(name: str, config: str) -> Boundary:
    return one_call(
        path=CREATE,
        stage="batch",
        call=uses_in_epoch,
        name="uses",
        arguments={
            **functions(create=CREATE, config=config),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "training": Knob("training"),
        },
        produced_by={"rows": _CALLER},
        reads=frozenset({"group"}),
        outputs={
            output: Output("B", "samples", "uses", at=Use("uses")[output], form=PerRow("list"))
            for output in ("uses", "drawn")
        },
        settings={name: {"training": name == "training"}},
        reach=f"every run with {'train' if name == 'training' else 'valid'}_dataset, on several data-parallel ranks",
        requires=(has_full_batch,) if name == "training" else (),
    )


def _cycle(config: str) -> Boundary:
    return one_call(
        path=CYCLE,
        stage="batch",
        call=places_in_epoch,
        name="places",
        arguments={
            **functions(create=CREATE, cycle=CYCLE, config=config),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            "epoch": Knob("epoch"),
        },
        produced_by={"epoch": "areal/infra/workflow_executor.py, prepare_batch: cycle_dataloader, over all epochs"},
        reads=frozenset({"group"}),
        outputs={"place in the epoch": Output("B", "", at=Use("places"), form=PerRow("list"))},
        settings={"shuffled": {"epoch": 0}},
        claims=_SHUFFLES,
        reach="every run with train_dataset.shuffle=True (the default) of more than one epoch",
        requires=(has_full_batch,),
    )
