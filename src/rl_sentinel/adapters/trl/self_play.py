"""TRL's XPO and Nash-MD: training steps on responses of the policy, and of its reference or of a mixture of both."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import enough_words, equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.loop_codecs import ENDED, SCORES, sampled, trains_as_sampled
from rl_sentinel.adapters.trl.nash_md import (
    NASH,
    NASH_EXPERIMENTAL,
    OBJECTIVE,
    judge_every_row,
    rewards_are_probabilities,
)
from rl_sentinel.adapters.trl.online_dpo import (
    PAIRS,
    PENALTY,
    logged_pairs,
    loss_boundary,
    read_from_logs,
    scored_reach,
)
from rl_sentinel.adapters.trl.pair_samplers import sampler_step, train_against_mixture, train_both
from rl_sentinel.adapters.trl.pair_sampling_fakes import PROMPTS, Mixture
from rl_sentinel.adapters.trl.preferences import PAIRED, SCALED, trainer_path
from rl_sentinel.adapters.trl.release import fields_of, source_of
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

XPO = "trl.trainer.xpo_trainer.XPOTrainer"
XPO_EXPERIMENTAL = "trl.experimental.xpo.xpo_trainer.XPOTrainer"

_XPO_DOCS = (
    "docs/source/xpo_trainer.md: XPO of arXiv 2405.21046 with pairs of a response of the model and of the reference; "
    "logged metrics: means of log-probs, implicit rewards, KL and entropy of both responses"
)
_NASH_DOCS = (
    "docs/source/nash_md_trainer.md, Logged metrics: loss/kl, the mean KL of the model and the reference; "
    "objective/entropy; rewards/probabilities, the mean probability that the model's response wins"
)
_XPO_PRODUCER = "xpo_trainer.py, _generate_completions: one response of the model and one of the reference per prompt"
_NASH_PRODUCER = (
    "nash_md_trainer.py, _generate_completions: one response of the model and one of the mixture per prompt"
)

#: The weights of the loss terms of XPO.
TERMS: Settings = {"beta": 0.5, "optimism": 0.25}

#: Setting -> what it changes. A chat template ends each message with the end token, so that prompts contain it.
XPO_SETTINGS: Mapping[str, Settings] = {
    "model's response wins": {},
    "reference's response wins": {"reference_wins": True},
    "missing EOS": PENALTY,
    "missing EOS, prompts with an end token": {**PENALTY, "ends_inside": True},
}

NASH_SETTINGS: Mapping[str, Settings] = {
    "whole step": {},
    "missing EOS": PENALTY,
    "missing EOS, prompts with an end token": {**PENALTY, "ends_inside": True},
}

#: Logged name -> output, of Nash-MD.
NASH_LOGGED: Mapping[str, Output] = {
    "loss/kl": Output("", "nats", "kl.k1", over="live"),
    "objective/entropy": Output("", "nats", "", over="live"),
    "rewards/probabilities": Output("", "", "outcome", over="live"),
}

#: The word of the end token.
END_WORD = "<eos>"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of both training steps: the loss with a reward model or a judge, and the logged metrics."""
    for paths, loss, logged, settings in (
        ((XPO, XPO_EXPERIMENTAL), _xpo, _xpo_logged, XPO_SETTINGS),
        ((NASH, NASH_EXPERIMENTAL), _nash, _nash_logged, NASH_SETTINGS),
    ):
        trainer = trainer_path(target, *paths)
        path = f"{trainer}.training_step"
        if not target.has(path):
            continue
        if why := target.fails(trainer):
            yield Unbound(path, "policy-loss", why)
            continue
        penalizes = "missing_eos_penalty" in fields_of(target, trainer)
        for name, changed in settings.items():
            if penalizes or "penalty" not in changed:
                yield from bindable(target, loss(path, name, changed, "model"))
        if target.has(f"{trainer}._compute_judge"):
            yield from bindable(target, loss(path, "judge", {}, "judge"))
        yield from bindable(target, logged(path, source_of(target.find(trainer))))


def few_prompts(inputs: Inputs) -> str:
    """The reason to skip a batch with more prompts than the data set has; empty otherwise."""
    return enough_words(inputs.batch.rows, PROMPTS)


def sampled_against_mixture(batch: Batch) -> Batch:
    """The batch with every token trained, and with rewards that are probabilities."""
    return judge_every_row(sampled(batch))


_ONE_EACH = (
    equal_micro_batches,
    no_empty_response,
    trains_as_sampled,
    no_extra_padding,
    rewards_are_probabilities,
    few_prompts,
)


def _penalized(settings: Settings) -> tuple[dict[str, Codec], dict[str, str], str]:
    """The codec of the responses' ends, the field of the penalty, and the first word of prompts."""
    if "penalty" not in settings:
        return {}, {}, ""
    return {"ended": ENDED}, {"missing_eos_penalty": "penalty"}, END_WORD if settings.get("ends_inside") else ""


def _xpo_step(path: str, settings: Settings, scored_by: str) -> Step:
    ended, field, opening = _penalized(settings)
    return sampler_step(
        path,
        train_both,
        {"beta": "beta", "alpha": "optimism", **field},
        {**PAIRS, **ended},
        scored_by=scored_by,
        opening=opening,
        more={
            "reference_wins": Knob("reference_wins", default=False),
            "penalty": Knob("penalty", default=0.0),
        },
        producer=_XPO_PRODUCER,
    )


def _xpo(path: str, name: str, settings: Settings, scored_by: str) -> Boundary:
    step, claimed = _xpo_step(path, settings, scored_by), PAIRED | SCALED | claims(_XPO_DOCS, algorithm="xpo")
    return loss_boundary(path, step, name, {**TERMS, **settings}, claimed, scored_reach(settings, scored_by))


def _xpo_logged(path: str, source: str) -> Boundary:
    return logged_pairs(path, _xpo_step(path, {}, "model"), TERMS, source, _XPO_DOCS)


def _nash_step(path: str, settings: Settings, scored_by: str) -> Step:
    ended, field, opening = _penalized(settings)
    columns: dict[str, Codec] = {"logprobs": Column("logprob"), "ref_logprobs": Column("ref_logprob")}
    return sampler_step(
        path,
        train_against_mixture,
        {"beta": "beta", **field},
        {**columns, "scores": SCORES, **ended},
        scored_by=scored_by,
        opening=opening,
        more={"penalty": Knob("penalty", default=0.0)},
        producer=_NASH_PRODUCER,
        fakes={f"{path.rpartition('.')[0].rpartition('.')[0]}.GeometricMixtureWrapper": Mixture},
    )


def _nash(path: str, name: str, settings: Settings, scored_by: str) -> Boundary:
    return loss_boundary(
        path,
        _nash_step(path, settings, scored_by),
        name,
        {"beta": 0.5, **settings},
        OBJECTIVE | SCALED,
        scored_reach(settings, scored_by),
        requires=_ONE_EACH,
        domain=sampled_against_mixture,
    )


def _nash_logged(path: str, source: str) -> Boundary:
    known = {name: one for name, one in NASH_LOGGED.items() if f'"{name}"' in source}
    return Boundary(
        path=path,
        stage="metric",
        steps=(_nash_step(path, {}, "model"),),
        outputs=read_from_logs(known),
        settings={"logged": {"beta": 0.5}},
        claims=claims(_NASH_DOCS, output_pairs={"loss/kl": "logprob against ref_logprob"}),
        reach="every step",
        requires=_ONE_EACH,
        domain=sampled_against_mixture,
    )
