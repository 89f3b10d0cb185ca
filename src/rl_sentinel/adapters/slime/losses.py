"""slime's policy losses per token together with the reducer of a micro-batch, and the reducer alone."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Earlier, Knob, knobs
from rl_sentinel.adapters.slime.arguments import (
    LOG_RATIO,
    LOSS_MASKS,
    MASK_SUMS,
    MASKS,
    OPTIONAL,
    PARALLEL_STATE,
    PPO,
    REDUCER,
    RESPONSE_LENGTHS,
    TOTAL_LENGTHS,
    packed,
    samples,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

CLIPPED, SEQUENCE, CISPO = (f"{PPO}.compute_{name}" for name in ("policy_loss", "gspo_kl", "cispo_loss"))

CLIP: Settings = {"eps_clip": 0.2, "eps_clip_high": 0.28}

_RATIO = claims("ppo_utils.py, compute_policy_loss: ratio of the current to the old policy", ratio=True)
_SEQUENCE = claims("ppo_utils.py, compute_gspo_kl: one value per sequence", ratio=True, scope="sequence")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of PPO with and without dual clip, GSPO, CISPO, and the reducer alone."""
    families: Mapping[str, Settings] = {
        "ppo": CLIP,
        "ppo, dual clip": {**CLIP, "eps_clip_c": 3.0},
        "ppo, per token": {**CLIP, "calculate_per_token_loss": True},
    }
    yield from bindable(target, _loss((_clipped(LOG_RATIO),), families, _RATIO))
    sequence = Step(
        call=SEQUENCE,
        name="ppo_kl",
        arguments={
            "full_log_probs": samples("logprob"),
            "full_old_log_probs": samples("old_logprob"),
            "local_log_probs": samples("logprob"),
            "loss_masks": LOSS_MASKS,
        },
        produced_by={"loss_masks": MASKS},
    )
    yield from bindable(target, _loss((sequence, _clipped(Earlier(Use("ppo_kl")))), {"gspo": CLIP}, _SEQUENCE))
    older = target.has(CLIPPED) and not target.has(CISPO)
    yield from bindable(
        target, _loss((_cispo(),), {"cispo": {"eps_clip": 1.0, "eps_clip_high": 4.0}}, Claims()), optional=older
    )
    yield from bindable(target, _reducer())


def _clipped(ppo_kl: Codec) -> Step:
    bounds = knobs("eps_clip", "eps_clip_high", "eps_clip_c")
    older = {"log_probs": packed("logprob"), "old_logprobs": packed("old_logprob")}
    return Step(
        call=CLIPPED,
        name="losses",
        arguments={
            "ppo_kl": ppo_kl,
            **(older if ppo_kl is LOG_RATIO else {}),
            "advantages": packed("advantage"),
            **bounds,
        },
        optional=frozenset({"ppo_kl", *older}),
    )


def _cispo() -> Step:
    columns = {"ppo_kl": LOG_RATIO, "log_probs": packed("logprob"), "advantages": packed("advantage")}
    return Step(call=CISPO, name="losses", arguments={**columns, **knobs(*CLIP)})


def _reduced(per_token: Codec) -> tuple[Step, Step]:
    """The step that builds the reducer of a micro-batch, and the step that applies it to the loss per token."""
    arguments = {
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": RESPONSE_LENGTHS,
        "loss_masks": LOSS_MASKS,
        "sample_denoms": MASK_SUMS,
        "calculate_per_token_loss": Knob("calculate_per_token_loss", default=False),
        **PARALLEL_STATE,
    }
    make_reducer = Step(
        call=REDUCER,
        name="sum_of_sample_mean",
        arguments=arguments,
        optional=frozenset({"sample_denoms"}) | OPTIONAL,
        produced_by={
            "loss_masks": MASKS,
            "sample_denoms": "loss.py, loss_function: rollout_mask_sums of rollout.py, _convert_samples_to_train_data",
        },
    )
    return make_reducer, Step(call=Use("sum_of_sample_mean"), name="loss", arguments={"0": per_token})


def _loss(steps: tuple[Step, ...], settings: Mapping[str, Settings], claimed: Claims) -> Boundary:
    return Boundary(
        path=" -> ".join([*(str(step.call) for step in steps), REDUCER]),
        stage="policy-loss",
        steps=(*steps, *_reduced(Earlier(Use("losses")[0]))),
        outputs={"loss": Output("", "", "loss")},
        settings=settings,
        claims=claimed,
        reach="; ".join(settings),
    )


def _reducer() -> Boundary:
    return Boundary(
        path=REDUCER,
        stage="aggregate",
        steps=_reduced(packed("advantage")),
        outputs={"loss": Output("", "", "loss")},
        settings={"default": {}, "per token": {"calculate_per_token_loss": True}},
        reach="--calculate-per-token-loss, or not",
    )
