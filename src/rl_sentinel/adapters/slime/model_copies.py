"""The weights of each part of a step of slime's actor on Megatron, which keeps copies of several models."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.slime.arguments import one_rank
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

ACTOR = "slime.backends.megatron_utils.actor.MegatronTrainRayActor"
TRAIN, LOAD = f"{ACTOR}.train", f"{ACTOR}.load_other_checkpoint"

#: Rollouts that are trained on; the training of each doubles the weights.
ROLLOUTS = 2

SETTINGS: Mapping[str, Settings] = {
    "reference": {"keep_old_actor": False},
    "reference, old actor": {"keep_old_actor": True},
}

_CLAIMS = claims(
    "actor.py, train: the model gets the weights of the reference, then those of the actor; comments: when there is "
    "old actor, we need to update the model params to actor manually; update the cpu actor weight to the latest model",
    conserves=True,
)
_PRODUCED = (
    "slime/backends/megatron_utils/actor.py, init: a copy of the actor's weights, then load_other_checkpoint of the "
    "reference and, with --keep-old-actor, of the old actor; neither --colocate nor --offload-train"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the actor's steps."""
    if target.has(TRAIN) and target.has(LOAD) and not target.fails(TRAIN):
        yield from bindable(target, _boundary())


class Options(SimpleNamespace):
    """Options of a run; those that are not set are None."""

    def __getattr__(self, name: str) -> None:
        """None, for a switch that is off."""


class Silent:
    """A profiler, logger or transfer that does nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method that does nothing."""
        return nothing


class Run:
    """The model of a run, and the weights with which its parts were called.

    The reference has the negative weights of the actor.
    """

    def __init__(self, rows: list[list[float]]) -> None:
        """A model with one weight tensor per row."""
        self.model = [torch.tensor(row) for row in rows]
        self.start = self.weights()
        self.seen: dict[str, list[list[Tensor]]] = defaultdict(list)

    def weights(self) -> list[Tensor]:
        """A copy of the present weights."""
        return [weight.clone() for weight in self.model]

    def named(self, *_about: object, **_options: object) -> Iterator[tuple[str, Tensor]]:
        """The weights by name."""
        return iter([(f"layer {number}", weight) for number, weight in enumerate(self.model)])

    def load(self, path: str) -> None:
        """Load the reference, or the actor's own checkpoint."""
        for weight, own in zip(self.model, self.start, strict=True):
            weight.copy_(-own if path == "reference" else own)

    def forward(self, *_about: object, store_prefix: str = "", **_options: object) -> dict[str, list[Tensor]]:
        """In place of the log-probs: store the weights."""
        self.seen[store_prefix].append(self.weights())
        return {f"{store_prefix}log_probs": []}

    def train(self, *_about: object) -> None:
        """In place of the optimizer's steps: store the weights, then double them."""
        self.seen["train"].append(self.weights())
        for weight in self.model:
            weight.mul_(2)


def weights_of_steps(
    train: Callable[..., Any], load: Callable[..., Any], actor: type, rows: list[list[float]], *, keep_old_actor: bool
) -> dict[str, list[Tensor]]:
    """Train on :data:`ROLLOUTS`; return the weights of each part with the last one, without the doublings.

    The old actor is not renewed, since no weights are transferred to engines.
    """
    one_process_group()
    run, doubled = Run(rows), 2 ** (ROLLOUTS - 1)
    args = Options(compute_advantages_and_returns=True, loss_type="policy_loss", keep_old_actor=keep_old_actor)
    worker = bare_instance(
        actor,
        args=args,
        role="actor",
        model=run.model,
        **dict.fromkeys(("optimizer", "opt_param_scheduler", "rollout_data_postprocess")),
        parallel_state=one_rank(),
        prof=Silent(),
        weight_updater=Silent(),
        _get_rollout_data=_two_steps,
    )
    names = train.__globals__
    modules = [names, *([names["TensorBackuper"].create.__globals__] if "TensorBackuper" in names else [])]
    with replaced_globals(*modules, **_globals(run, args, names)), _without_device():
        kept = _copies(worker, run, names)
        load(worker, "ref", "reference")
        if keep_old_actor:
            load(worker, "old_actor", "own")
        for number in range(ROLLOUTS):
            train(worker, number, None)
    last = {name: weights[-1] for name, weights in run.seen.items()}
    return {
        "reference": [-weight for weight in last["ref_"]],
        "old": [weight / (1 if keep_old_actor else doubled) for weight in last[""]],
        "trained": [weight / doubled for weight in last["train"]],
        "kept": [weight / (2 * doubled) for weight in kept().values()],
    }


def _copies(worker: Any, run: Run, names: Mapping[str, Any]) -> Callable[[], dict[str, Tensor]]:  # noqa: ANN401 - of the target
    """Make the worker's copies as its ``init`` does; return a function that reads the actor's copy."""
    if "TensorBackuper" in names:  # since 2025-11
        worker.weights_backuper = names["TensorBackuper"].create(source_getter=run.named, single_tag=None)
        worker._active_model_tag = "actor"  # noqa: SLF001 - as init does
        worker.weights_backuper.backup("actor")
        return lambda: dict(worker.weights_backuper.get("actor"))
    worker.weights = {"actor": {}}
    worker.update_cpu_params_dict(worker.weights["actor"])
    return lambda: dict(worker.weights["actor"])


def _two_steps(*_about: object) -> dict[str, list[int]]:
    """Data of a rollout for two optimizer steps, before which a run computes old log-probs."""
    return {"num_microbatches": [1, 1], "global_batch_sizes": [1, 1]}


def _globals(run: Run, args: Options, names: Mapping[str, Any]) -> dict[str, Any]:
    """Names in the module -> fakes: the model's functions, data and logs."""
    rows_only = len(inspect.signature(names["get_data_iterator"]).parameters) == 1

    def load(*_about: object, **_options: object) -> tuple[int, int]:
        run.load(args.load)
        return 0, 0

    return {
        **dict.fromkeys(("named_parameters", "named_params_and_buffers"), run.named),
        "forward_only": run.forward,
        "train": run.train,
        "load_checkpoint": load,
        "get_rollout_data": _two_steps,
        "get_data_iterator": lambda *_about: [] if rows_only else ([], [1, 1]),
        "inverse_timer": lambda _name: nullcontext(),
        "Timer": Silent,
        **dict.fromkeys(("compute_advantages_and_returns", "log_rollout_data", "log_perf_data"), nothing),
        **dict.fromkeys(("train_metric_utils", "train_data_utils", "train_dump_utils", "accelerator"), Silent()),
    }


def _without_device() -> Any:  # noqa: ANN401 - a context
    """A context in which memory is not pinned, and no GPU is awaited."""
    make = torch.empty_like

    def unpinned(like: Tensor, *, pin_memory: bool = False, **options: Any) -> Tensor:  # noqa: ANN401, ARG001 - of torch
        return make(like, **options)

    return patch.multiple("torch", empty_like=unpinned, cuda=Silent())


def _boundary() -> Boundary:
    parts = {"reference": "reference's log-probs", "old": "old log-probs", "trained": "loss", "kept": "actor's copy"}
    return one_call(
        path=TRAIN,
        stage="batch",
        call=weights_of_steps,
        name="steps",
        arguments={
            **functions(train=TRAIN, load=LOAD, actor=ACTOR),
            "rows": EachRow(RowTokens("rollout_logprob")),
            "keep_old_actor": Knob("keep_old_actor"),
        },
        produced_by={"rows": _PRODUCED},
        outputs={
            f"weights of the {name}": Output("B T", "nats", "rollout_logprob", at=Use("steps")[key], form=Ragged())
            for key, name in parts.items()
        },
        settings=SETTINGS,
        claims=_CLAIMS,
        reach="every run on Megatron with a reference (--ref-load and a KL)",
        requires=(no_empty_response,),
    )
