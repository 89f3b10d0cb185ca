"""TRL's losses over data-parallel ranks: the forward pass of the wrapper must run, or ranks share no gradient."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import kto, liger, liger_losses, losses, preferences
from rl_sentinel.adapters.trl.arguments import GRPO
from rl_sentinel.adapters.trl.model_wrapper import REACH, SHARES, WRAPPED, ModelWrapper, unwrapped
from rl_sentinel.adapters.trl.pair_codecs import tokens_have_probabilities
from rl_sentinel.adapters.trl.preference_families import DPO_FAMILIES, KTO_FAMILIES
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import method
from rl_sentinel.adapters.trl.token_model import HeadedPolicy, set_logprobs
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use

#: The family of GRPO's losses that every release with a fused loss has.
GRPO_FAMILY = "bnpo"

#: Source text of a loss that asks the wrapper for the model's head, which fails with more than one rank.
FAILS_WRAPPED = "= model.get_output_embeddings()"

#: A call of a loss: the trainer, a model or its wrapper, and the collated batch.
Loss = Callable[[Any, Any, dict[str, Any]], Tensor]


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of DPO's and KTO's losses, plain and fused, and of GRPO's fused loss.

    :mod:`losses` and :mod:`preferences` report trainers that cannot be built.
    """
    for fused in (False, True):
        if fused and not liger.installed():
            continue
        yield from _pairs(target, preferences.DPO, fused=fused)
        yield from _pairs(target, preferences.trainer_path(target, kto.KTO, kto.KTO_EXPERIMENTAL), fused=fused)
        if fused:
            yield from _grpo(target)


def loss_over_ranks(
    entry: Loss,
    learner: Any,  # noqa: ANN401 - a trainer
    policy: Any,  # noqa: ANN401 - a model
    inputs: dict[str, Any],
    *,
    wrapped: bool,
) -> Tensor:
    """The loss of a batch; with ``wrapped``, the part whose gradient the ranks share."""
    ready = copy(learner)
    ready.accelerator = RankAccelerator(learner.accelerator, 0, 1)
    ready.accelerator.unwrap_model = unwrapped
    if not wrapped:
        ready._forward_redirection = liger.forwarded  # noqa: SLF001 - there is no wrapper
        return entry(ready, policy, inputs)
    model = ModelWrapper(policy)
    return model.shared(entry(ready, model, inputs))


def pair_loss_over_ranks(  # noqa: PLR0913 - a trainer, its batch, and the log-probs of its models
    entry: Loss,
    learner: Any,  # noqa: ANN401 - a trainer
    features: list[dict[str, Any]],
    logprobs: Tensor,
    ref_logprobs: Tensor | None = None,
    *,
    wrapped: bool,
) -> Tensor:
    """:func:`loss_over_ranks` on rows that the trainer collates; policy and reference return these log-probs."""
    set_logprobs(learner.model, logprobs)
    if ref_logprobs is not None:
        set_logprobs(learner.ref_model, ref_logprobs)
    return loss_over_ranks(entry, learner, learner.model, learner.data_collator(features), wrapped=wrapped)


def _pairs(target: Target, path: str, *, fused: bool) -> Iterator[Boundary | Unbound]:
    """The boundary of a preference trainer's loss."""
    paired = path == preferences.DPO
    family = (DPO_FAMILIES if paired else KTO_FAMILIES)["default"]
    if fused:
        settings = {**family.settings, **liger_losses.fused_setting(target, path)}
        family = replace(family, settings=settings, needs="LigerFusedLinear")
    for found in preferences.families_of(target, path, {"default": family}):
        if not isinstance(found, Unbound) and not (fused and FAILS_WRAPPED in found[0].source):
            made = (preferences if paired else kto).training_step(*found)
            wrapped = _wrapped(made, pair_loss_over_ranks, fused=fused)
            pairing = preferences.PAIRED if paired else kto.ALTERNATING
            yield from bindable(target, replace(wrapped, claims=wrapped.claims | pairing))


def _grpo(target: Target) -> Iterator[Boundary | Unbound]:
    plain = method(target, GRPO, "_compute_loss", "compute_loss")
    fused = f"{GRPO}.compute_liger_loss"
    if not target.has(fused) or target.fails(GRPO):
        return
    family = losses.release_family(target, GRPO_FAMILY, plain)
    if family is None:
        return
    own = replace(family, settings={**family.settings, **liger_losses.fused_setting(target, GRPO)})
    made = losses.grpo(target, plain, GRPO_FAMILY, own)
    *before, step = made.steps
    policy = Object(HeadedPolicy, {"logprobs": Column("logprob"), "tokens": Column("token")})
    arguments = {"learner": step.arguments["self"], "policy": policy, "inputs": step.arguments["inputs"]}
    entry = {"entry": Constant(Function(f"{GRPO}.compute_loss"))}
    made = replace(
        made,
        path=f"{GRPO}.compute_loss",
        steps=(*before, replace(step, arguments=entry | arguments)),
        requires=(*made.requires, tokens_have_probabilities),
        domain=liger_losses.with_probability,
    )
    yield from bindable(target, _wrapped(made, loss_over_ranks, fused=True))


def _wrapped(made: Boundary, call: Callable[..., Tensor], *, fused: bool) -> Boundary:
    """The boundary of a trainer's loss, whose last step calls the loss for one batch, with and without a wrapper."""
    before = tuple(one for one in made.steps if one.name == "trainer")
    last = next(one for one in made.steps if one.name == "loss")
    step = Step(
        call=call,
        name="loss",
        arguments={**last.arguments, "wrapped": Knob("wrapped")},
        produced_by=last.produced_by,
    )
    (settings,) = made.settings.values()
    return replace(
        made,
        steps=(*before, step),
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings={"data-parallel" + (", Liger" if fused else ""): {**settings, **WRAPPED}},
        claims=SHARES,
        reach=", ".join(filter(None, (made.reach, REACH))),
    )
