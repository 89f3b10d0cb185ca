"""Boundaries of verl's ``compute_log_prob`` before 0.8: log-probs and entropy from the model's logits."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import actor
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER
from rl_sentinel.adapters.verl.data_parallel import ACTOR
from rl_sentinel.adapters.verl.fakes import worker_with_fake
from rl_sentinel.adapters.verl.worker_batch import SIZES, accelerator_fakes, forward_sizes, worker_data, worker_object
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

PATH = f"{ACTOR}.compute_log_prob"

#: The kernel that verl calls if flash-attention is installed, as on a GPU.
_KERNEL = "verl.utils.torch_functional.cross_entropy_loss"

_CLAIMS = claims(
    "dp_actor.py, compute_log_prob, docstring: the log probability of the responses; temperature of meta_info",
    output_algorithms={"logprob": "log-prob of the token", "entropy": "entropy of the logits"},
    knobs={"temperature": (0.7, 1.6)},
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the log-probs, with equal micro-batches and with a dynamic batch size."""
    if target.has(PATH) and not target.fails(PATH):
        source = inspect.getsource(target.find(ACTOR)).partition("def compute_log_prob")[2].partition("def update_")[0]
        yield from bindable(target, *(_scored(target, source, dynamic=dynamic) for dynamic in (False, True)))


def _scored(target: Target, source: str, *, dynamic: bool) -> Boundary:
    config = actor(target, "vanilla", {**SIZES, **constants(use_torch_compile=False)})
    fakes = accelerator_fakes(target, ACTOR.rpartition(".")[0], source) | kernels(target)
    with_entropy = "calculate_entropy" in source
    step = Step(
        call=PATH,
        name="scored",
        fakes=fakes,
        arguments={
            "0": worker_object(worker_with_fake, ACTOR, config, {"logits": Column("logits")}),
            "1": worker_data({}, **forward_sizes(dynamic=dynamic), temperature=Knob("temperature")),
            **(constants(calculate_entropy=True) if with_entropy else {}),
        },
        produced_by={"1": f"{MASK_PRODUCER}; fsdp_workers.py, compute_log_prob: temperature of the rollout"},
    )
    places: dict[str, int | str] = {"logprob": "log_probs", "entropy": "entropys"}
    if 'outputs["log_probs"]' not in source:
        places = {"logprob": 0, "entropy": 1} if "return log_probs, entropys" in source else {}
    if not with_entropy:
        places.pop("entropy", None)
    return scored_boundary(PATH, step, places, dynamic=dynamic)


def kernels(target: Target) -> dict[str, Callable[..., Any]]:
    """A fake of the kernel that computes token losses, in releases that have it."""
    return {_KERNEL: token_losses} if target.has(_KERNEL) else {}


def scored_boundary(path: str, step: Step, places: Mapping[str, int | str], *, dynamic: bool) -> Boundary:
    """The boundary of a method that returns outputs at ``places``, or log-probs alone if ``places`` is empty."""
    scored = Use("scored")
    settings: dict[str, Settings] = {"other temperature": {"temperature": 0.5}}
    places_of = {name: scored[place] for name, place in places.items()} or {"logprob": scored}
    return Boundary(
        path=path,
        stage="batch",
        steps=(step,),
        unused=frozenset({"mask"}),
        outputs={name: Output("B T", "nats", name, at=at, form=Padded()) for name, at in places_of.items()},
        settings={"dynamic batch size": {"temperature": 0.5}}
        if dynamic
        else {"default": {"temperature": 1.0}} | settings,
        claims=_CLAIMS,
        reach="every training step; rollout.temperature"
        + (", rollout.log_prob_use_dynamic_bsz=True" if dynamic else ""),
        requires=(no_empty_response, *(() if dynamic else (equal_micro_batches,))),
    )


def token_losses(logits: Tensor, labels: Tensor, **_about: object) -> tuple[Tensor, Tensor]:
    """The cross entropy of each label, in place of flash-attention's kernel; the second result (z-loss) is 0."""
    losses = cross_entropy(logits, labels, reduction="none")
    return losses, losses.new_zeros(losses.shape)
