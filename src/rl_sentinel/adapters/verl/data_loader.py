"""Boundary of verl's data loaders: prompt order in an epoch, and position after a restore from a checkpoint."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Absent

MODULE = "verl.trainer.ppo.ray_trainer"
PATH = f"{MODULE}.RayPPOTrainer._create_dataloader"
MAIN = "verl.trainer.main_ppo"
LOADER = "torchdata.stateful_dataloader.StatefulDataLoader"
SAMPLERS = (f"{MAIN}.create_rl_sampler", f"{MODULE}.create_rl_sampler")

#: Values of ``truncation``; the output is the index.
TRUNCATIONS = ("error", "left", "right", "middle")

_DOCS = "docs/examples/config.rst, data"
_CLAIMS = claims("ray_trainer.py, _create_dataloader, comment: use sampler for better ckpt resume")
_KNOBS: dict[str, tuple[Scalar, Scalar]] = {
    "data.shuffle": (False, True),
    "data.seed": (1, 2),
    "data.train_batch_size": (2, 1),
    "data.truncation": ("error", "left"),
}
_SHUFFLED: Settings = {"data.shuffle": True, "data.seed": 1, "data.train_batch_size": 2, "data.truncation": "error"}


class PromptDataset:
    """A fake dataset of numbered prompts; its file name is the number of prompts."""

    def __init__(self, *about: Any, **options: Any) -> None:  # noqa: ANN401 - whatever the trainer passes
        """Accept the arguments of verl's dataset; store the number of prompts and the truncation."""
        sections = [one for one in (*about, *options.values()) if hasattr(one, "get") and "truncation" in one]
        files = about[0] if about else next(options[n] for n in ("parquet_files", "data_files") if n in options)
        self.rows = int(files)
        self.truncation = options.get("truncation") or next((one["truncation"] for one in sections), "error")

    def __len__(self) -> int:
        """The number of prompts."""
        return self.rows

    def __getitem__(self, row: int) -> int:
        """The index of a prompt."""
        return row


def collate(rows: list[int]) -> list[int]:
    """The prompts of a batch, as a list."""
    return list(rows)


def loader_without_workers(real: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401 - the loader's own options
    """The real data loader without worker processes and without collation."""
    return real(**{**options, "num_workers": 0, "collate_fn": collate})


def stateful_loader(**options: Any) -> Any:  # noqa: ANN401 - the loader's own options
    """The ``StatefulDataLoader`` of torchdata, without worker processes."""
    return loader_without_workers(
        importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader, **options
    )


def run_epochs(create: Callable[..., Any], config: Any, rows: int) -> dict[str, Any]:  # noqa: ANN401
    """Draw three epochs, and restore another loader from a checkpoint after one batch of the second epoch.

    Returns:
        ``rest``, ``next``: the position of each prompt in the rest of the second epoch and in the third, -1 if it is
        missing; ``rest restored``, ``next restored``: the same after the restore; ``uses``, ``validated``: how often an
        epoch of training, and of validation, has each prompt; ``steps``: the number of batches of an epoch;
        ``truncation``: the index of the truncation in :data:`TRUNCATIONS`.
    """
    config.data.train_files = config.data.val_files = rows

    def loaders() -> Any:  # noqa: ANN401 - a trainer fake
        trainer = SimpleNamespace(config=config, tokenizer=None, processor=None)
        create(trainer, *([None] * (len(inspect.signature(create).parameters) - 1)))
        return trainer

    first = loaders()
    whole_epoch = _epoch(first)
    batches = iter(first.train_dataloader)
    next(batches)
    state = first.train_dataloader.state_dict() if hasattr(first.train_dataloader, "state_dict") else None
    whole = [[row for batch in batches for row in batch], _epoch(first)]
    restored = loaders()
    restored.train_dataloader.load_state_dict(state)
    again = [_epoch(restored), _epoch(restored)]
    validated = [row for batch in first.val_dataloader for row in batch]
    return {
        "rest": _places(whole[0], rows),
        "next": _places(whole[1], rows),
        "rest restored": _places(again[0], rows),
        "next restored": _places(again[1], rows),
        "uses": torch.tensor([float(whole_epoch.count(row)) for row in range(rows)]),
        "validated": torch.tensor([float(validated.count(row)) for row in range(rows)]),
        "steps": float(len(first.train_dataloader)),
        "truncation": float(TRUNCATIONS.index(first.train_dataset.truncation)),
    }


def _epoch(trainer: Any) -> list[int]:  # noqa: ANN401 - a trainer fake
    return [row for batch in trainer.train_dataloader for row in batch]


def _places(order: list[int], rows: int) -> torch.Tensor:
    """``[B]``: the position of each prompt in the order, or -1 if it is missing."""
    return torch.tensor([float(order.index(row)) if row in order else -1.0 for row in range(rows)])


def fills_two_batches(inputs: Inputs) -> str:
    """The reason to skip a batch whose prompts do not fill two or more whole batches of two; empty otherwise."""
    rows = inputs.batch.rows
    return "" if rows % 2 == 0 and rows > 2 else f"{rows} prompts do not fill two or more batches of 2"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data loaders of the trainer, with shuffling."""
    if target.has(PATH) and not target.fails(LOADER):
        yield from try_bind(target, PATH, "batch", lambda: [_loaders(target)], required=True)


def loader_fakes(target: Target) -> dict[str, Callable[..., Any]]:
    """Fake data sets, and data loaders without worker processes."""
    fakes: dict[str, Callable[..., Any]] = {
        f"{MODULE}.StatefulDataLoader": stateful_loader,
        f"{MODULE}.DataLoader": partial(loader_without_workers, torch.utils.data.DataLoader),
        f"{MODULE}.RLHFDataset": PromptDataset,
        f"{MAIN}.create_rl_dataset": PromptDataset,
        f"{MODULE}.create_rl_dataset": PromptDataset,
    }
    return present(target, fakes)


def _loaders(target: Target) -> Boundary:
    source = inspect.getsource(target.find(PATH))
    if LOADER.rpartition(".")[2] not in source:
        raise Absent("the loaders of this release have no state to restore")
    source += "".join(inspect.getsource(target.find(path)) for path in SAMPLERS if target.has(path))
    fields: dict[str, Codec] = {name: Knob(name, default) for name, default in _SHUFFLED.items()}
    known = {name: pair for name, pair in _KNOBS.items() if offers(target, source, name)}
    result, form = Use("drawn"), PerRow()
    named = {
        "rest": "uninterrupted.rest",
        "next": "uninterrupted.next",
        "rest restored": "resumed.rest",
        "next restored": "resumed.next",
        "uses": "uses",
        "validated": "uses",
    }
    outputs = {name: Output("B", "samples", quantity, at=result[name], form=form) for name, quantity in named.items()}
    outputs |= {name: Output("", "", at=result[name]) for name in ("steps", "truncation")}
    return one_call(
        path=PATH,
        stage="batch",
        call=run_epochs,
        name="drawn",
        arguments={
            "create": Constant(Function(PATH)),
            "config": default_config(target, "", fields),
            "rows": Derived(lambda inputs: inputs.batch.rows),
        },
        fakes=loader_fakes(target),
        produced_by={"config": "verl/trainer/config: the configuration files of the release"},
        reads=frozenset({"group"}),
        outputs=outputs,
        settings={"shuffled": _SHUFFLED},
        claims=_CLAIMS | claims(_DOCS, knobs=known),
        reach="every run; one that is restarted from a checkpoint",
        requires=(fills_two_batches,),
    )


def offers(target: Target, source: str, name: str) -> bool:
    """Whether the release has the setting, in its configuration files or in code that reads the data section."""
    word = name.rpartition(".")[2]
    shipped_files = (target.root / "verl" / "trainer" / "config").rglob("*ppo*.yaml")
    read = re.search(rf"""data(_config)?(\.get\(\s*["']{word}["']|\.{word}\b)""", source)
    return read is not None or any(f"\n  {word}:" in file.read_text(encoding="utf-8") for file in shipped_files)
