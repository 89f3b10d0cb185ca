"""Boundaries of the composed path: what it hands on by sets of choices, its mini-batches, its last decision."""

import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.reference.arguments import NUMBERS, SIGNAL, claims, given
from rl_sentinel.frameworks.reference.layouts import turns
from rl_sentinel.frameworks.target import Target

READY = f"{SIGNAL}.path.loss_ready"
APART = f"{SIGNAL}.ready.prompts_apart"
TRUSTED = f"{SIGNAL}.ready.trusted"
LAID = f"{SIGNAL}.rollout.laid_out"

#: Name of choices that are given packed tokens.
_PACKED = "tokens and rows rejected, packed"

#: Bounds of a token's k1 against the sampler, and of a row's mean, in nats per token.
_BOUNDS: Settings = {"estimator": "k1", "low": -0.4, "high": 0.4}

#: Choices that reject, by name -> what is decided by; a row is out where it is dropped, or where no token is kept.
_REJECTED: Mapping[str, Settings] = {
    "rejected": {**_BOUNDS, "over": "mean"},
    **{name: {**_BOUNDS, "over": "mean", "tokens": True} for name in ("tokens and rows rejected", _PACKED)},
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Outcomes of trajectories, suppressed and normalised ones, with rejection; tokens with a KL; then what follows."""
    grpo = partial(target.find(f"{SIGNAL}.advantage.grpo.advantages"), standardise=False, epsilon=0.0)
    rloo = target.find(f"{SIGNAL}.advantage.rloo.advantages")
    said = {"scope": "group", "grouping": "id", "credit": "outcome", "masked": "yes"}
    steps = ("trajectory", "last_step")
    whole = {**said, "trajectories": "step-wise"}
    yield _outcome(target, "grpo of trajectories", {"estimator": grpo}, steps, **whole, baseline="relative")
    by = target.call(
        f"{SIGNAL}.normalisation.Normalisation",
        mean="group",
        deviation="group",
        leave_one_out=False,
        biased=False,
        epsilon=NUMBERS["epsilon"],
    )
    void = {"suppresses": "unscored"}
    yield _outcome(
        target, "suppressed", {"estimator": rloo, "normalisation": by}, ("scored",), **said, **void, baseline="relative"
    )
    kept = partial(target.find(f"{SIGNAL}.correction.rejection.rows_kept"), **_BOUNDS, over="mean")
    yield _outcome(
        target,
        "rejected",
        {"estimator": grpo, "rejections": (kept,)},
        ("old_logprob", "rollout_logprob"),
        **said,
        baseline="relative",
    )
    near = partial(target.find(f"{SIGNAL}.correction.rejection.tokens_kept"), **_BOUNDS)
    rejected = {"estimator": grpo, "rejections": (near, kept)}
    columns = ("old_logprob", "rollout_logprob")
    yield _outcome(target, "tokens and rows rejected", rejected, columns, **said, baseline="relative")
    yield _outcome(target, _PACKED, rejected, columns, **said, baseline="relative")
    for level in ("token", "sequence"):
        yield _weighed(target, level)
    yield _parts(target)
    yield _temporal(target)
    for name in ("gae", "turn_level_gae"):
        yield from (_judged(target, name, stored) for stored in ("padded", "packed"))
    yield _baselined(target)
    yield _apart(target, grpo)
    yield _trusted(target)
    yield from (_trusted_by_outcome(target, stored) for stored in ("padded", "packed"))
    yield _laid(target)


def ready(
    target: Target, batch: Batch, columns: tuple[str, ...], choices: Mapping[str, object], *, packed: bool = False
) -> Any:  # noqa: ANN401 - the copy's own class
    """What the path hands on, of a batch of which these columns are known besides."""
    named = {n: getattr(batch, n) for n in columns}
    if "last_step" in named:
        named["last"] = named.pop("last_step")
    plain = {"reward": batch.reward, "group": batch.group, "mask": batch.mask}
    if packed:
        wide = {n: c for n, c in (plain | named).items() if c.shape == batch.mask.shape and n != "reward_parts"}
        named |= {n: target.call(f"{SIGNAL}.segments.packed", c, length=batch.length) for n, c in wide.items()}
        plain["mask"] = target.call(f"{SIGNAL}.segments.Segments", named.pop("mask"), batch.length)
    rollout = target.call(f"{SIGNAL}.rollout.Rollout", **plain, **named)
    return target.call(READY, rollout, by=target.call(f"{SIGNAL}.path.Choices", **choices))


def _outcome(
    target: Target, name: str, choices: Mapping[str, object], columns: tuple[str, ...], **said: str
) -> Boundary:
    by = {"algorithm": "outcomes of what is kept, centred"} if name in _REJECTED else {}

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        return {"advantage": ready(target, batch, columns, choices, packed=name == _PACKED).advantage}

    return Boundary(
        path=READY,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "group", "mask", *columns, *(["length"] if name == _PACKED else [])}),
        outputs={"advantage": Output("B", "reward", "advantage")},
        settings={name: {"choices": name, **_REJECTED.get(name, {})}},
        claims=claims(target.find(READY), masked_slots="any", **said, **by),
    )


def _weighed(target: Target, level: str) -> Boundary:
    """Bounded weights against the policy that sampled, of tokens, or of responses on each of their tokens."""
    columns = ("old_logprob", "rollout_logprob")

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        bound = partial(target.find(f"{SIGNAL}.correction.bounds.truncated"), high=settings["high"])
        weight = target.find(f"{SIGNAL}.correction.weights.{level}_weights")
        choices = {"estimator": target.find(f"{SIGNAL}.advantage.rloo.advantages"), "weight": weight}
        own = with_columns(batch, old_logprob=batch.logprob)  # before an update both are one
        found = ready(target, own, columns, {**choices, "bounds": (bound,)}).weight
        return {"weight": found.detach(), "requires_grad": torch.tensor(float(found.requires_grad))}

    said = {"algorithm": "truncated"} if level == "token" else {}
    outputs = {"weight": Output("B T", "ratio", "weight", "token" if level == "token" else "sequence")}
    return Boundary(
        path=f"{READY}.weight",
        stage="correct",
        call=call,
        reads=frozenset({"logprob", "rollout_logprob", "mask"}),
        outputs=outputs | {"requires_grad": Output("", "", "requires_grad")},
        settings={f"weights of a {level}": {"level": level, "high": NUMBERS["high"]}},
        claims=claims(target.find(READY), masked="yes", masked_slots="any", weights="constant", **said),
    )


def _parts(target: Target) -> Boundary:
    """GDPO, which weighs the parts of an outcome itself."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        function = target.find(f"{SIGNAL}.advantage.gdpo.advantages")
        weight = given(function, batch)["weight"]
        choices = {"estimator": partial(function, weight=weight, epsilon=settings["epsilon"])}
        return {"advantage": ready(target, batch, ("reward_parts",), choices).advantage}

    said = target.find(f"{SIGNAL}.advantage.gdpo.CLAIMS")
    return Boundary(
        path=READY,
        stage="advantage",
        call=call,
        reads=frozenset({"reward_parts", "group", "mask"}),
        outputs={"advantage": Output("B", "reward", "advantage")},
        settings={"gdpo of parts": {"epsilon": NUMBERS["epsilon"]}},
        claims=claims(target.find(READY), **said),
    )


def _baselined(target: Target) -> Boundary:
    """The optimal token baseline, which reads tokens and compares a prompt's rows at each."""
    columns = ("old_logprob", "pi_squared", "token_reward")

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        estimator = target.find(f"{SIGNAL}.advantage.optimal_token_baseline.advantages")
        own = with_columns(batch, old_logprob=batch.logprob)  # before an update both are one
        return {"advantage": ready(target, own, columns, {"estimator": estimator}).advantage}

    said = target.find(f"{SIGNAL}.advantage.optimal_token_baseline.CLAIMS")
    return Boundary(
        path=READY,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "group", "mask", "logprob", "pi_squared", "token_reward"}),
        outputs={"advantage": Output("B T", "reward", "advantage")},
        settings={"optimal token baseline": {"choices": "optimal token baseline"}},
        claims=claims(target.find(READY), **said),
    )


def _temporal(target: Target) -> Boundary:
    """GAE of a reward that pays for its KL, which is logged as it is."""
    columns = ("old_logprob", "ref_logprob", "value", "token_reward")

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        numbers = {n: settings[n] for n in ("discount", "decay")}
        estimator = partial(target.find(f"{SIGNAL}.advantage.gae.advantages"), **numbers)
        price = {"kl": target.find(f"{SIGNAL}.kl.k1"), "kl_coefficient": settings["coefficient"]}
        found = ready(target, batch, columns, {"estimator": estimator, **price})
        return {"advantage": found.advantage, "kl": found.kl}

    said = {"scope": "sequence", "credit": "temporal", "masked": "yes", "masked_slots": "any"}
    said |= {"knob:discount": "0.5|1.0", "knob:decay": "0.0|1.0", "knob:coefficient": "0.1|0.5"}
    return Boundary(
        path=READY,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "mask", *columns}),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "kl": Output("B T", "nats", "kl.k1"),
        },
        settings={"gae with a kl": {n: NUMBERS[n] for n in ("discount", "decay", "coefficient")}},
        claims=claims(target.find(READY), **said),
    )


def _judged(target: Target, name: str, stored: str) -> Boundary:
    """Advantages by a critic, and what it is trained towards: its own value and the advantage of the same step."""
    function = target.find(f"{SIGNAL}.advantage.{name}.advantages")
    columns = tuple(n for n in ("value", "token_reward", "turn") if n in inspect.signature(function).parameters)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        estimator = partial(function, **{n: settings[n] for n in ("discount", "decay")})
        found = ready(target, batch, columns, {"estimator": estimator}, packed=stored == "packed")
        answers = {"advantage": found.advantage, "returns": found.returns}
        if stored == "padded":
            return answers
        place = {"length": batch.length, "width": batch.width, "fill": 0.0}
        return {n: target.call(f"{SIGNAL}.segments.padded", x, **place) for n, x in answers.items()}

    said = target.find(f"{SIGNAL}.advantage.{name}.CLAIMS")
    return Boundary(
        path=READY,
        stage="advantage",
        call=call,
        reads=frozenset({"reward", "group", "mask", *columns, *(["length"] if stored == "packed" else [])}),
        outputs={n: Output("B T", "reward", n) for n in ("advantage", "returns")},
        settings={f"{name.replace('_', ' ')}, {stored}": {n: NUMBERS[n] for n in ("discount", "decay")}},
        claims=claims(target.find(READY), **said),
    )


def _apart(target: Target, estimator: object) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        whole = ready(target, batch, (), {"estimator": estimator})
        found = torch.zeros_like(batch.reward)
        for part in target.call(APART, whole, prompts=settings["prompts"], generator=None):
            found[torch.isin(batch.group, part.group)] = part.reward
        return {"reward": found}

    return Boundary(
        path=f"{READY} -> {APART}",
        stage="batch",
        call=call,
        reads=frozenset({"reward", "group", "mask"}),
        outputs={"reward": Output("B", "reward", "reward")},
        settings={"one prompt": {"prompts": 1}, "two prompts": {"prompts": 2}},
        claims=claims(target.find(APART)),
    )


def _trusted(target: Target) -> Boundary:
    """Off-policy sequence masking of what the path handed on, with advantages of tokens."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        whole = ready(target, batch, (), {"estimator": lambda mask: torch.where(mask, batch.advantage, 0.0)})
        count = float(batch.live.sum().clamp(min=1))
        found = target.call(TRUSTED, whole, batch.logprob, batch.old_logprob, **settings, denominator=count)
        return {"keep": found.mask.float(), "rejected": found.dropped_fraction}

    return Boundary(
        path=f"{READY} -> {TRUSTED}",
        stage="correct",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask"}),
        outputs={
            "keep": Output("B T", "", "keep", "sequence"),
            "rejected": Output("", "", "rejected_fraction", over="live"),
        },
        settings={"default": {"threshold": NUMBERS["threshold"]}},
        claims=claims(target.find(TRUSTED), masked="yes", masked_slots="any", **{"knob:threshold": "0.01|0.5"}),
    )


def _trusted_by_outcome(target: Target, stored: str) -> Boundary:
    """The same with one advantage for each response, which stands on all of its tokens."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        packed = stored == "packed"
        whole = ready(target, batch, (), {"estimator": lambda reward: reward}, packed=packed)
        columns = [batch.logprob, batch.old_logprob]
        if packed:
            columns = [target.call(f"{SIGNAL}.segments.packed", c, length=batch.length) for c in columns]
        count, threshold = float(batch.live.sum().clamp(min=1)), settings["threshold"]
        found = target.call(TRUSTED, whole, *columns, threshold=threshold, denominator=count)
        return {
            "keep": target.call(f"{SIGNAL}.reduce.live_rows", found.mask).float(),
            "rejected": found.dropped_fraction,
        }

    said = {"algorithm:keep": "off policy sequences kept", "algorithm:rejected": "rejected fraction"}
    return Boundary(
        path=f"{READY} -> {TRUSTED}",
        stage="correct",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "reward", "group", "mask", "length"}),
        outputs={
            "keep": Output("B", "", "keep", "sequence"),
            "rejected": Output("", "", "rejected_fraction", over="live"),
        },
        settings={f"outcomes, {stored}": {"threshold": NUMBERS["threshold"], "per_response": True}},
        claims=claims(target.find(TRUSTED), masked="yes", masked_slots="any", **said, **{"knob:threshold": "0.01|0.5"}),
    )


def _laid(target: Target) -> Boundary:
    """Rows as turns of one conversation, each laid out as a row."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        known = {"reward": {"one": 0.0}, "group": {"one": 0}, "scored": {"one": True}}
        told = turns(target, batch, 0)
        whole = target.call(LAID, told, **known, merged=settings["merged"], padding=-1)
        laid, found = whole.rollout, {"response": torch.zeros_like(batch.token)}
        for row, (first, count) in enumerate(zip(whole.prompt_length.tolist(), whole.length.tolist(), strict=True)):
            found["response"][row, :count] = whole.token[row, first : first + count]
        wide = {"logprob": laid.rollout_logprob, "token_reward": laid.token_reward, "trained": laid.mask}
        return found | {n: torch.nn.functional.pad(c, (0, batch.width - c.shape[1])) for n, c in wide.items()}

    return Boundary(
        path=LAID,
        stage="batch",
        call=call,
        reads=frozenset({"logprob", "token_reward", "mask", "length", "token"}),
        outputs={n: Output("B T", unit, n) for n, unit in (("logprob", "nats"), ("token_reward", "reward"))}
        | {"trained": Output("B T", "", "mask"), "response": Output("B T", "", "token")},
        settings={"apart": {"merged": False}},
        claims=claims(target.find(LAID), conserves="yes", padding="zero"),
    )
