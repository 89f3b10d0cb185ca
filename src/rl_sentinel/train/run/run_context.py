"""The context of a training step: the objects that it needs, and the callbacks that report progress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.rollout.prefetch import Prefetcher
from rl_sentinel.train.rollout.sampler import Sampler
from rl_sentinel.train.run.checkpoint_writer import CheckpointWriter
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.journal import Journal
from rl_sentinel.train.run.stopwatch import Stopwatch
from rl_sentinel.train.run.training_state import TrainingState


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions that report progress; by default they do nothing.

    ``warm_start`` gets the number of warm-start steps done and the total; ``step`` the metrics and the timing of a
    step; ``message`` a line of text; ``completions`` the responses to print; ``evaluation`` a step and its metrics.
    ``opened`` is called with the run's folder and selection before a model is built; an error there stops the run.
    """

    warm_start: Callable[[int, int], None] = lambda _done, _total: None
    step: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = lambda _metrics, _timing: None
    message: Callable[[str], None] = lambda _text: None
    completions: Callable[[Sequence[Mapping[str, Any]]], None] = lambda _lines: None
    evaluation: Callable[[int, Mapping[str, float]], None] = lambda _step, _metrics: None
    opened: Callable[[Path, Selection], None] = lambda _folder, _selection: None


@dataclass(frozen=True, slots=True)
class Run:
    """The objects that a training step needs.

    ``template`` and ``code`` are digests of the recipe's files at the start: of the chat template, and by file of the
    user's functions. ``loaded`` is the digest of the weights of ``policy.load``; empty without it.
    """

    recipe: Recipe
    selection: Selection
    models: Models
    state: TrainingState
    journal: Journal
    callbacks: Callbacks
    ranks: Ranks
    sampler: Sampler
    prefetcher: Prefetcher
    stopwatch: Stopwatch
    writer: CheckpointWriter
    template: str
    code: Mapping[str, str]
    loaded: str
