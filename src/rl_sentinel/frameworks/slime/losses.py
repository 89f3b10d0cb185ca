"""slime's policy losses with the reducer that its trainer gives them, and that reducer alone."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.slime.ragged import PPO, lengths, masks, parts
from rl_sentinel.frameworks.target import Target

CLIPPED = f"{PPO}.compute_policy_loss"
CISPO = f"{PPO}.compute_cispo_loss"
SEQUENCE = f"{PPO}.compute_gspo_kl"
REDUCER = "slime.backends.megatron_utils.cp_utils.get_sum_of_sample_mean"

CLIP: Settings = {"eps_clip": 0.2, "eps_clip_high": 0.28}

_RATIO = claims("ppo_utils.py, compute_policy_loss: ratio of the current to the old policy", ratio=True)
_SEQUENCE = claims("ppo_utils.py, compute_gspo_kl: one value per sequence", ratio=True, scope="sequence")

_REDUCTIONS: Mapping[str, Settings] = {"default": {}, "per token": {"calculate_per_token_loss": True}}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """PPO with and without dual clip, GSPO, CISPO, then the reducer."""
    for path, make in ((CLIPPED, _ppo), (SEQUENCE, _gspo), (CISPO, _cispo), (REDUCER, _reducers)):
        if path == CISPO and not target.has(path) and target.has(CLIPPED):
            continue  # older than CISPO
        try:
            target.find(path)
            target.find(REDUCER)
            yield from make(target)
        except Unbindable as why:
            yield Unbound(path, "aggregate" if path == REDUCER else "policy-loss", str(why))


def reduced(target: Target, batch: Batch, tokens: Tensor, settings: Settings) -> Tensor:
    """What the trainer's reducer makes of the loss of all tokens, put end to end."""
    per_token = {k: v for k, v in settings.items() if k == "calculate_per_token_loss"}
    reduce = target.call(REDUCER, **lengths(batch), loss_masks=masks(batch), **per_token)
    loss: Tensor = reduce(tokens)
    return loss


def _log_ratio(batch: Batch) -> Tensor:
    """What slime's losses take as ``ppo_kl``: old less current log-probs, end to end."""
    return torch.cat(parts(batch, "old_logprob")) - torch.cat(parts(batch, "logprob"))


def _clip(settings: Settings) -> Settings:
    return {k: v for k, v in settings.items() if k.startswith("eps_clip")}


def _ppo(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = (_log_ratio(batch), torch.cat(parts(batch, "advantage")))
        loss, _ = target.call(CLIPPED, *given, **_clip(settings))
        return {"loss": reduced(target, batch, loss, settings)}

    families = {
        "ppo": CLIP,
        "ppo, dual clip": {**CLIP, "eps_clip_c": 3.0},
        "ppo, per token": {**CLIP, "calculate_per_token_loss": True},
    }
    yield _policy(f"{CLIPPED} -> {REDUCER}", call, families, _RATIO)


def _gspo(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        current, old = parts(batch, "logprob"), parts(batch, "old_logprob")
        kl = target.call(SEQUENCE, current, old, current, masks(batch))
        loss, _ = target.call(CLIPPED, kl, torch.cat(parts(batch, "advantage")), **_clip(settings))
        return {"loss": reduced(target, batch, loss, settings)}

    yield _policy(f"{SEQUENCE} -> {CLIPPED} -> {REDUCER}", call, {"gspo": CLIP}, _SEQUENCE)


def _cispo(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        current, advantage = torch.cat(parts(batch, "logprob")), torch.cat(parts(batch, "advantage"))
        loss, _ = target.call(CISPO, _log_ratio(batch), current, advantage, **_clip(settings))
        return {"loss": reduced(target, batch, loss, settings)}

    yield _policy(f"{CISPO} -> {REDUCER}", call, {"cispo": {"eps_clip": 1.0, "eps_clip_high": 4.0}}, Claims())


def _policy(
    path: str,
    call: Callable[[Batch, Settings], Mapping[str, Tensor]],
    settings: Mapping[str, Settings],
    said: Claims,
) -> Boundary:
    return Boundary(
        path=path,
        stage="policy-loss",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask", "length"}),
        outputs={"loss": Output("", "", "loss")},
        settings=settings,
        claims=said,
        reach="; ".join(settings),
    )


def _reducers(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        return {"loss": reduced(target, batch, torch.cat(parts(batch, "advantage")), settings)}

    yield Boundary(
        path=REDUCER,
        stage="aggregate",
        call=call,
        reads=frozenset({"advantage", "mask", "length"}),
        outputs={"loss": Output("", "", "loss")},
        settings=_REDUCTIONS,
        reach="--calculate-per-token-loss, or not",
    )
