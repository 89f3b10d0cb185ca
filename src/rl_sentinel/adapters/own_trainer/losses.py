"""Boundary of the trainer's loss for one recipe, over micro-batches and ranks."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.library.kls import KINDS
from rl_sentinel.adapters.own_trainer.batch_episodes import TRAIN
from rl_sentinel.adapters.own_trainer.code_numbers import with_numbers_of_code
from rl_sentinel.adapters.own_trainer.composition import (
    SETTING,
    Composition,
    as_raised,
    changed_numbers,
    claims_of,
    formula_names,
    numbers_of,
    settable_claims,
    stated_claims,
)
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings, number_of
from rl_sentinel.core.layout import Axis

GRADIENT = f"{TRAIN}.update.minibatch_gradient"
ROWS, LOSS = f"{GRADIENT}.rows_with_gradient", f"{GRADIENT}.compute_loss"


def loss(composed: Composition) -> Boundary:
    """The boundary of a mini-batch's loss; it is split into micro-batches and ranks if losses of parts add up."""
    recipe, selection = composed.recipe, composed.selection
    mode, kl, parameters = recipe.loss.aggregation, recipe.kl, inspect.signature(selection.loss).parameters
    numbers = numbers_of(selection.loss)
    coefficient = kl.loss if kl is not None else 0.0
    of_table = numbers | ({"length": recipe.loss.length} if recipe.loss.length else {})
    own = ":" in recipe.loss.name
    names = formula_names(of_table, "policy-loss", own=own)
    reads = {"logprob", "advantage", "mask", *({"old_logprob", "turn"} & set(parameters))}
    reads |= ({"ref_logprob"} if coefficient else set()) | ({"group"} if mode == "prompt-mean" else set())
    cut: frozenset[Axis] = frozenset({"micro_batches", "ranks"} if selection.additive else ())

    def compute(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        changed = composed.with_numbers(loss=changed_numbers(of_table, names, settings))
        of_kl = number_of(settings, "kl_loss_coef") if coefficient else 0.0
        return {"loss": _in_parts(changed, batch, settings, of_kl)}

    settings = {name: of_table[of] for of, inside in names.items() for name in inside}
    settings |= {"kl_loss_coef": coefficient} if coefficient else {}
    stated = stated_claims(composed, "loss", "policy-loss")
    counts = bool(stated.get("mean")) and recipe.loss.chosen is None
    boundary = Boundary(
        path=f"{ROWS} -> {LOSS}",
        stage="policy-loss",
        steps=(replace(batch_step(compute, frozenset(reads), cut), explain=as_raised),),
        outputs=by_name({"loss": Output("", "", "loss", over="live" if counts else "")}),
        settings={SETTING: settings or {"aggregation": mode}},
        claims=claims_of("loss", composed, _loss_claims(composed, settable_claims(stated, names))),
        own=own,
    )
    return with_numbers_of_code(composed, boundary, selection.loss) if own else boundary


def _in_parts(composed: Composition, batch: Batch, settings: Settings, coefficient: float) -> Tensor:
    target, selection = composed.target, composed.selection
    laid = SimpleNamespace(
        prompt_length=batch.prompt_length,
        length=batch.length,
        rollout=SimpleNamespace(group=batch.group, turn=batch.turn),
    )
    columns = {n: getattr(batch, n) for n in ("mask", "old_logprob", "ref_logprob")}
    columns["advantage"] = torch.where(batch.mask, batch.advantage, 0.0)  # signal.path: 0 at untrained tokens
    training_batch = target.call(
        f"{TRAIN}.update.training_batch.TrainingBatch", laid=laid, **columns, chosen=_chosen(composed, batch)
    )
    whole = selection.aggregation(composed.recipe, batch.mask, batch.group)
    rows = target.call(ROWS, training_batch, torch.arange(batch.rows), lazy=selection.lazy)
    ranks, parts = int(settings.get("ranks") or 1), int(settings.get("micro_batches") or 1)
    size = max(1, -(-len(rows) // (ranks * parts)))
    total = (batch.logprob * 0).nan_to_num().sum()
    for rank in range(ranks):
        process = target.call(f"{TRAIN}.run.distributed.Ranks", rank, ranks)
        for part in process.own_parts(rows, size=size, lengths=laid.prompt_length + laid.length):
            if len(part):
                more = {"selection": selection, "aggregation": whole.of_rows(part), "coefficient": coefficient}
                total = total + target.call(LOSS, batch.logprob[part], training_batch, part, **more)
    return total


def _chosen(composed: Composition, batch: Batch) -> Tensor | None:
    """The tokens that the loss treats differently, as ``minibatch_gradient.choose_tokens`` selects them."""
    choose = composed.selection.choose_tokens
    if choose is None:
        return None
    columns = (batch.logprob.detach(), batch.advantage)
    covariance = composed.target.call("rl_sentinel.signal.covariance.covariances", *columns, mask=batch.mask)
    chosen: Tensor = choose(covariance, mask=batch.mask, generator=torch.Generator().manual_seed(0))
    return chosen


def _loss_claims(composed: Composition, claims: dict[str, str]) -> dict[str, str]:
    recipe, kl = composed.recipe, composed.recipe.kl
    if claims:
        claims |= {"aggregation": recipe.loss.aggregation, "rows": "live"}
    claims |= {"denominator": "given"} if composed.selection.additive else {}
    if recipe.loss.chosen is not None:  # a share of the tokens, possibly random, differs between batches
        claims = {key: text for key, text in claims.items() if key not in ("algorithm", "mean")}
        choose = composed.target.find(f"rl_sentinel.signal.covariance.{recipe.loss.chosen.name}")
        claims |= {"row-order": "yes"} if "generator" in inspect.signature(choose).parameters else {}
    if kl is not None and kl.loss:
        claims |= dict(zip(("kl", "gradient"), KINDS.get(kl.estimator, (kl.estimator,) * 2), strict=True))
    return claims
