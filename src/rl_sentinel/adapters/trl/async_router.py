"""TRL's asynchronous GRPO on a mixture of experts: the weight of the router loss, and its logged mean over ranks."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.rank_threads import rank_number
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import one_rank
from rl_sentinel.adapters.trl.async_loss import (
    COLLATOR,
    PLANNER,
    SAMPLE,
    SETTINGS,
    TRAINER,
    Answer,
    FusedModel,
    make_async_trainers,
    train_on_samples,
)
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: The number of ranks, and the number of micro-batches per optimizer step.
RANKS, MICRO_BATCHES = 2, 2

#: The router loss on each rank, and the mean over ranks.
OF_RANKS, MEAN = (1.0, 3.0), 2.0

_DOC = (
    "async_grpo_trainer.py, compute_loss, comment: the router's loss is scaled for gradient accumulation, as the "
    "policy loss is; the logged number is summed over the ranks and divided by their number"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the router loss's coefficient and logged mean, if the policy loss includes that loss."""
    path = f"{TRAINER}.compute_loss"
    if not target.has(path) or not target.has(PLANNER) or target.fails(TRAINER):
        return
    if "self.router_aux_loss_coef" in inspect.getsource(target.find(path)):
        yield from bindable(target, _router(path))


class RoutedModel(FusedModel):
    """A fake mixture-of-experts model. If router logits are requested, it also returns the router loss of the rank.

    ``requested`` is the default of the request; releases whose loss makes no request set it when they patch the model.
    """

    def __init__(self, logprobs: Tensor, entropies: Tensor) -> None:
        """Store ``[B, T]`` log-probs and entropies, and set the router loss to 0."""
        super().__init__(logprobs, entropies)
        self.of_ranks, self.requested = (0.0,) * RANKS, False

    def __call__(
        self,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,
        *,
        output_router_logits: object = None,
        **_more: object,
    ) -> Answer:
        """Log-probs and entropies, and ``aux_loss`` (the router loss) if router logits are requested."""
        found = super().__call__(labels, shift_labels)
        if self.requested if output_router_logits is None else output_router_logits:
            found["aux_loss"] = torch.tensor(self.of_ranks[rank_number()])
        return found


def acting_coefficient(  # noqa: PLR0913 - the parts of a trainer that a micro-batch passes through
    entry: Callable[..., Tensor],
    kind: type,
    collator: Any,  # noqa: ANN401 - a class of the target
    planner: Any,  # noqa: ANN401 - a class of the target
    samples: list[dict[str, Any]],
    model: RoutedModel,
    clips: tuple[float, float],
    coefficient: float,
) -> dict[str, Any]:
    """Train on a micro-batch with a router loss of 0, and again with the router losses :data:`OF_RANKS`.

    Returns ``loss``, the loss without the router loss; ``coefficient``, the factor of the router loss in one optimizer
    step; and ``logged``, the router loss that the first rank logs.
    """
    losses, trainers = [], []
    model.requested = "output_router_logits" not in inspect.getsource(entry)
    for of_ranks in ((0.0,) * RANKS, OF_RANKS):
        model.of_ranks = of_ranks
        trainers = make_async_trainers(kind, *clips, MICRO_BATCHES, RANKS)
        for one in trainers:
            vars(one).update(aux_loss_enabled=True, router_aux_loss_coef=coefficient)
        losses.append(train_on_samples(entry, trainers, collator, planner, samples, model))
    acting = (losses[1] - losses[0]).detach() * MICRO_BATCHES / MEAN
    logged = trainers[0]._metrics["train"]["aux_loss"]  # noqa: SLF001 - where it logs
    return {"loss": losses[0], "coefficient": acting, "logged": sum(logged) / max(1, len(logged))}


def _router(path: str) -> Boundary:
    settings = {**SETTINGS, "router_aux_loss_coef": 0.25, "router_loss": MEAN}
    outputs = {
        name: Output("", "", f"setting.{setting}", at=Use("trained")[key], form=Number())
        for name, setting, key in (
            ("router_aux_loss_coef", "router_aux_loss_coef", "coefficient"),
            ("aux_loss", "router_loss", "logged"),
        )
    }
    return one_call(
        path=path,
        stage="config",
        call=acting_coefficient,
        name="trained",
        arguments={
            **functions(entry=path, kind=TRAINER, collator=COLLATOR, planner=PLANNER),
            "samples": EachRow(Table(dict(SAMPLE))),
            "model": Object(RoutedModel, {"logprobs": Column("logprob"), "entropies": Column("entropy")}),
            "clips": Constant((SETTINGS["clip_low"], SETTINGS["clip_high"])),
            "coefficient": Knob("router_aux_loss_coef"),
        },
        produced_by={"model": "transformers, MoeCausalLMOutputWithPast: aux_loss, with output_router_logits"},
        reads=frozenset(),
        outputs={"step": Output("", at=Use("trained")["loss"]), **outputs},
        settings={"router": settings},
        claims=claims(_DOC),
        reach="a mixture of experts with a router_aux_loss_coef above 0, on two ranks",
        requires=(rows_of_ranks, no_empty_response, every_row_trains, one_rank),
    )


def rows_of_ranks(inputs: Inputs) -> str:
    """The reason to skip a batch whose samples do not divide evenly among :data:`RANKS` ranks; empty otherwise."""
    return f"the samples do not divide evenly among {RANKS} ranks" if inputs.batch.rows % RANKS else ""
