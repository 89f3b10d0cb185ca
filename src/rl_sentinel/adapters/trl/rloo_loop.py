"""RLOO in TRL before 0.22, as a single-method training loop: KL, advantages, loss and metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.pairs import even_rows
from rl_sentinel.adapters.kit.prompt_groups import equal_groups, prompts_have_siblings
from rl_sentinel.adapters.kit.requirements import (
    equal_micro_batches,
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.user_layouts import one_advantage_per_row
from rl_sentinel.adapters.kit.value_codecs import Computed, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import RLOO, truncated_fill_width
from rl_sentinel.adapters.trl.loop_codecs import (
    ENDED,
    FLAT,
    TRAINED,
    logged,
    loop_step,
    sampled,
    tensor,
    trains_as_sampled,
)
from rl_sentinel.adapters.trl.loop_steps import logged_steps
from rl_sentinel.adapters.trl.ppo_loop import COMPARED, OBJECTIVE, OBJECTIVE_CLAIMS
from rl_sentinel.adapters.trl.ppo_updates import POLICY_LOGGED, VALUE_LOGGED
from rl_sentinel.adapters.trl.release import fields_of, source_of
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

#: The number of responses of a prompt in boundaries that read no groups, and of tokens that distinguish them.
TWO = 2

#: The prompts of such rows.
IN_PAIRS = Derived(lambda inputs: [row // TWO for row in range(inputs.batch.rows)])

#: The weight of the KL.
WEIGHT = 0.25

_KL = "rloo_trainer.py, train, 4. compute rewards: kl of the log-probs at sampling and of the reference's"
_RLOO = claims(
    "rloo_trainer.py, train: baseline = (rlhf_reward.sum(0) - rlhf_reward) / (rloo_k - 1), of rloo_k rows of a prompt",
    scope="group",
    baseline="relative",
    algorithm="rloo",
    standardized=False,
)
_LOSS = claims(
    "rloo_trainer.py, train: ratio of the summed log-probs, clamp with cliprange, mean over the rows",
    ratio=True,
    scope="sequence",
    algorithm="sequence ppo",
    aggregation="sequence-mean-token-mean",
    rows="all",
)
_NORMALIZED = "rloo_config.py, docstring: normalize_reward, normalize_advantage"

_SAMPLED = (no_empty_response, trains_as_sampled)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundaries of the loop, in releases that have it."""
    path = f"{RLOO}.train"
    fields = fields_of(target, RLOO)
    if "rloo_k" not in fields or not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(path, "advantage", why)
        return
    if "train" not in vars(target.find(RLOO)):
        return  # the loop is that of transformers
    found = [_kl(path), _advantages(path, "default", {}), _policy(path), _objective(path)]
    if "token_level_kl" in fields:
        per_token = _advantages(path, "KL per token", {"token_level_kl": True})
        knob = claims("rloo_config.py, docstring of token_level_kl: per token or per sequence", knobs=LEVELS)
        found.append(replace(per_token, claims=per_token.claims | knob))
    if "missing_eos_penalty" in fields:
        found.append(_advantages(path, "missing EOS", {"penalty": 1.5}))
    found += [_normalized(path, name) for name in ("normalize_reward", "normalize_advantage") if name in fields]
    source = source_of(target.find(path))
    found += [_of_values(path, name, output) for name, output in VALUE_LOGGED.items() if f'"{name}"' in source]
    if "self.log(" in source:
        found.append(logged_steps(path, TWO))
    yield from bindable(target, *found)


#: The setting that says whether the KL is subtracted at each token, and its values.
LEVELS: Mapping[str, tuple[bool, bool]] = {"token_level_kl": (True, False)}


def distinct(inputs: Inputs) -> str:
    """The reason to skip a batch where several responses of a prompt consist of EOS only; empty otherwise.

    The fake model distinguishes the responses of a prompt by their first token.
    """
    batch = inputs.batch
    alone = batch.group[batch.length < TWO].tolist()
    return "several responses of a prompt consist of EOS only" if len(set(alone)) < len(alone) else ""


_GROUPED = (*_SAMPLED, prompts_are_contiguous, groups_are_equal, prompts_have_siblings, distinct)


def pairs_distinct(inputs: Inputs) -> str:
    """The reason to skip a batch where a prompt has one response, or two that consist of EOS only; empty otherwise."""
    lengths = inputs.batch.length
    if len(lengths) % TWO:
        return "a prompt has only one response"
    alone = (lengths < TWO).reshape(-1, TWO).all(1)
    return "several responses of a prompt consist of EOS only" if bool(alone.any()) else ""


def siblings(batch: Batch) -> Batch:
    """Give all prompts equal numbers of responses, and each response at least two tokens if the width allows it."""
    return several_tokens(sampled(equal_groups(batch)))


def pairs(batch: Batch) -> Batch:
    """The batch without an odd last row, unless it is the only one; two tokens or more each, if the width allows it."""
    return several_tokens(sampled(even_rows(batch)))


def several_tokens(batch: Batch) -> Batch:
    """Give each response at least two tokens, if the width allows it."""
    if batch.width < TWO or not bool((batch.length < TWO).any()):
        return batch
    return sampled(with_columns(batch, length=batch.length.clamp(min=TWO)))


def _kl(path: str) -> Boundary:
    return Boundary(
        path=path,
        stage="kl",
        steps=(loop_step(path, {}, {**COMPARED, "prompts": IN_PAIRS}),),
        outputs={"kl": tensor("kl", "nats", "kl.k1")},
        settings={"KL": {}},
        claims=claims(_KL, algorithm="k1", output_pairs={"kl": "old_logprob against ref_logprob"}),
        reach="every step",
        requires=(*_SAMPLED, pairs_distinct),
        domain=pairs,
    )


def divergence(rows: int, width: int) -> Tensor:
    """A KL ``[B, T]`` for each token. It differs between rows, so that it does not cancel within a prompt."""
    return (torch.arange(rows).unsqueeze(1) + 2 * torch.arange(width)) % 3 * 0.5


#: Log-probs of a reference that is below the sampling policy by :func:`divergence`.
BELOW = Derived(
    lambda inputs: FLAT - divergence(inputs.batch.rows, inputs.batch.width + inputs.layout.extra), frozenset({"extra"})
)


def scores(penalty: float = 0.0) -> Computed:
    """Scores such that subtracting the weighted KL and the penalty for a missing EOS gives the outcome."""

    def compute(inputs: Inputs) -> Tensor:
        batch = inputs.batch
        kl = torch.where(batch.mask, divergence(*batch.mask.shape), 0.0).sum(1)
        cut = torch.where(batch.scored, 0.0, penalty) if penalty else 0.0
        return batch.reward + WEIGHT * kl + cut

    columns = frozenset({"reward", "mask"} | ({"scored"} if penalty else set()))
    return Computed(columns, compute, "the score contains the KL and the penalty that the trainer subtracts")


def _advantages(path: str, name: str, settings: Settings) -> Boundary:
    """The boundary of the advantages of outcomes, which are the scores minus the weighted KL."""
    penalty = float(settings.get("penalty") or 0.0)
    known: dict[str, Codec] = {"ref_logprobs": BELOW, "scores": scores(penalty)}
    known |= {"ended": ENDED} if penalty else {}
    return Boundary(
        path=path,
        stage="advantage",
        steps=(loop_step(path, settings, known, {"kl_coef": WEIGHT}, grouped=True),),
        outputs={"advantage": row("advantages", "advantage")},
        settings={name: settings},
        claims=_RLOO,
        reach=", ".join(f"{n}={v}" for n, v in settings.items()) or "every step",
        requires=(*_GROUPED, *((truncated_fill_width,) if penalty else ())),
        domain=siblings,
    )


def row(name: str, quantity: str) -> Output:
    """An output ``[B]``: the value of a local variable of ``train`` at the time of its log call."""
    return Output("B", "reward", quantity, at=TRAINED[name], form=AsReturned())


def _normalized(path: str, name: str) -> Boundary:
    """The boundary of the advantages under the setting ``name``.

    The setting normalizes over all rows, and must have an effect.
    """
    boundary = _advantages(path, name, {name: True})
    claimed = claims(_NORMALIZED, scope="batch", knobs={name: (True, False)})
    return replace(boundary, claims=claimed, reach=f"{name}=True")


def _policy(path: str) -> Boundary:
    """The boundary of the loss; the loop computes its advantages from the rewards of each prompt."""
    settings: Settings = {"clip_low": 0.2, "clip_high": 0.2}
    rewards = Computed(frozenset({"advantage", "group"}), rewards_for, "the loop computes the advantages from rewards")
    known = {"logprobs": Column("logprob"), "old_logprobs": Column("old_logprob"), "scores": rewards}
    outputs = {n: replace(o, quantity="", over="") if "clip" in n or "kl" in n else o for n, o in POLICY_LOGGED.items()}
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(loop_step(path, settings, known, {"kl_coef": 0.0}, parts=True, grouped=True),),
        outputs={"loss": Output("", "", "loss", at=TRAINED["loss"]), **logged(outputs)},
        settings={"policy": settings},
        claims=_LOSS,
        reach="every step",
        requires=(*_GROUPED, equal_micro_batches, is_centered),
        domain=centered,
    )


def _of_values(path: str, name: str, output: Output) -> Boundary:
    """The boundary of the mean score, and of a value-model metric that RLOO logs although it has no value model."""
    boundary = _objective(path, logprobs=Column("logprob"))
    outputs = {"objective/scores": OBJECTIVE["objective/scores"], name: output}
    return replace(boundary, outputs=logged(outputs), settings={name: {}}, claims=Claims())


def rewards_for(inputs: Inputs) -> Tensor:
    """Rewards for which the leave-one-out advantages equal the advantages of the batch."""
    batch = inputs.batch
    size = int((batch.group == batch.group[0]).sum())
    rewards: Tensor = batch.advantage[:, 0] * (size - 1) / size
    return rewards


def group_means(batch: Batch) -> Tensor:
    """The mean advantage over each row's prompt, ``[B]``."""
    labels, of = torch.unique(batch.group, return_inverse=True)
    first = batch.advantage[:, 0].double()
    means: Tensor = first.new_zeros(len(labels)).index_add_(0, of, first) / of.bincount()
    return means[of]


def centered(batch: Batch) -> Batch:
    """The batch with one advantage per response and with mean 0 over the responses of each prompt."""
    batch = one_advantage_per_row(siblings(batch))
    means = group_means(batch)
    if float(means.abs().max()) < NEAR:
        return batch
    return with_columns(batch, advantage=(batch.advantage.double() - means.unsqueeze(1)).to(batch.advantage.dtype))


#: A mean that is smaller counts as 0.
NEAR = 1e-6


def is_centered(inputs: Inputs) -> str:
    """The reason to skip a mini-batch with advantages that no leave-one-out baseline can give; empty otherwise."""
    batch = inputs.mini_batch
    same = bool((batch.advantage == batch.advantage[:, :1])[batch.mask].all())
    fits = same and float(group_means(batch).abs().max()) < NEAR
    return (
        ""
        if fits
        else "leave-one-out advantages are constant in a response and sum to 0 in a prompt, but these are not"
    )


def _objective(path: str, **more: Codec) -> Boundary:
    """The boundary of the metrics of the sampled responses."""
    known = {**COMPARED, "scores": Column("reward"), "prompts": IN_PAIRS, **more}
    return Boundary(
        path=path,
        stage="metric",
        steps=(loop_step(path, {}, known, {"kl_coef": WEIGHT}),),
        outputs=logged(OBJECTIVE),
        settings={"objective": {}},
        claims=OBJECTIVE_CLAIMS,
        reach="every step",
        requires=(*_SAMPLED, pairs_distinct),
        domain=pairs,
    )
