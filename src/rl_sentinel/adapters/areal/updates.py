"""AReaL's updates of actor, critic and supervised model, in micro-batches on the FSDP and Megatron engines."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from rl_sentinel.adapters.areal.arguments import ACTOR, CONFIG, CRITIC, ROLLOUT, SPLIT, padded_to_longest
from rl_sentinel.adapters.areal.fakes import (
    ENTROPY,
    LABELS,
    LOGPROBS,
    VALUES,
    fsdp_engine,
    inline_engine,
    placed_engine,
    shared_engine,
    update,
)
from rl_sentinel.adapters.areal.megatron_fake import megatron_engine
from rl_sentinel.adapters.areal.update_families import (
    ACTOR_FAMILIES,
    CRITIC_FAMILY,
    CRITIC_LOGGED,
    LOGGED,
    LOGGED_ROWS,
    SFT_FAMILY,
    SFT_LOGGED,
    Family,
    with_one_bound,
)
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import has_trained_token
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence, TokenVersions
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.codec import Codec, Inputs

ENGINE = "areal.engine.fsdp_engine.FSDPEngine"
CRITIC_CONFIG = "areal.api.cli_args.PPOCriticConfig"
LOSS = "areal.trainer.ppo.actor.grpo_loss_fn"
LM = "areal.trainer.sft.lm_engine.LMEngine"
LM_CONFIG = "areal.api.cli_args.TrainEngineConfig"
PLATFORM = "areal.infra.platforms.current_platform"

MEGATRON = "areal.engine.megatron_engine.MegatronEngine"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine class and the factory of its fake; ``ranks`` share each sequence."""

    path: str
    make: Callable[..., Any]
    ranks: int = 1

    @property
    def train(self) -> str:
        """The path of the engine's method for an update."""
        return f"{self.path}.train_batch"


_FSDP, _MEGATRON = Engine(ENGINE, fsdp_engine), Engine(MEGATRON, megatron_engine)
#: The engine of 2025, which reads the model's logits and calls ``backward`` inside of its method.
_INLINE = Engine(ENGINE, inline_engine)
#: The engine of January 2026, which copies what it passes to the loss.
_COPYING = Engine(ENGINE, placed_engine)

#: Ranks of the engine that have parts of each sequence.
_SHARING = Engine(ENGINE, shared_engine, ranks=2)

#: The engine on Megatron computes the same losses, and only scales them differently: one family is enough.
_PLAIN = {"ppo": ACTOR_FAMILIES["ppo"]}
_ONE_FAMILY = (_MEGATRON, _SHARING)

_SHIFTED = FullSequence(shift=1)
_UPDATE = (
    "areal/trainer/ppo/actor.py, _compute_advantages: logprobs, prox_logp, advantages and loss_mask at the position "
    "that predicts the token"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of updates of the actor, of the critic, and of supervised training.

    Supervised training is not bound on Megatron, or on ranks that share sequences.
    """
    if target.has(f"{ENGINE}._compute_logprobs_and_loss"):
        choose_platform(target)
        yield from _updates(target, _COPYING if copies_inputs(target) else _FSDP)
        if target.has(f"{ENGINE}._sp_all_gather"):
            yield from _updates(target, _SHARING)
    elif trains_inline(target):
        choose_platform(target)
        yield from _updates(target, _INLINE)
    # Earlier releases compute the loss inside train_batch, on an engine of several processes.
    if target.has(f"{MEGATRON}._compute_logprobs_and_loss") and not target.fails(MEGATRON):
        choose_platform(target)
        yield from _updates(target, _MEGATRON)


def _updates(target: Target, engine: Engine) -> Iterator[Boundary | Unbound]:
    columns: dict[str, Codec] = {LOGPROBS: Column("logprob", _SHIFTED, leaf=True), ENTROPY: Column("entropy", _SHIFTED)}
    outputs = {**columns, LABELS: numbers_of_tokens(_SHIFTED)}
    can_read = target.has(CONFIG) and not target.fails(CONFIG)
    known = {one.name for one in fields(target.find(CONFIG))} if can_read else set()
    families = _PLAIN if engine in _ONE_FAMILY else ACTOR_FAMILIES
    if can_read and "eps_clip_higher" not in known:
        families = {name: with_one_bound(family) for name, family in families.items()}
    for name, family in families.items():
        if (can_read and not known.issuperset(family.words)) or not _is_read(target, family.more):
            continue  # the release lacks an option of this family
        data = {
            **outputs,
            "logprobs": Column(family.sampler, _SHIFTED),
            "prox_logp": Column("old_logprob", _SHIFTED),
            "advantages": Column("advantage", _SHIFTED),
            "rewards": Column("reward", PerRow()),
            **dict.fromkeys(("kl_rewards", "tot_rewards"), Column("token_reward", _SHIFTED)),
            **family.more,
        }
        method = method_of(target, ACTOR, "ppo_update")
        # The tracker is slow, and its aggregation does not depend on the loss: one setting is enough.
        logged = LOGGED if name == "ppo" and engine is _FSDP else {}
        boundary = _boundary(name, method, (ACTOR, CONFIG), family, data, logged, engine)
        yield from _bound(target, boundary, method, engine)
        if logged:
            rows = Family(settings=family.settings)
            boundary = _boundary("rows", method, (ACTOR, CONFIG), rows, data, LOGGED_ROWS, engine)
            yield from _bound(target, boundary, method, engine)
    if engine is not _INLINE or target.has(CRITIC):  # the first releases have no critic
        yield from _critic(target, engine)
    if engine not in _ONE_FAMILY:
        method, numbers = method_of(target, LM, "train_lm"), SFT_LOGGED if engine is _FSDP else {}
        boundary = _boundary("sft", method, (LM, LM_CONFIG), SFT_FAMILY, outputs, numbers, engine)
        yield from _bound(target, boundary, method, engine)


def _critic(target: Target, engine: Engine) -> Iterator[Boundary | Unbound]:
    """The boundary of the critic's update."""
    critic = {
        VALUES: Column("value", _SHIFTED, leaf=True),
        "values": Column("old_value", _SHIFTED),
        "returns": Column("returns", _SHIFTED),
    }
    method, numbers = method_of(target, CRITIC, "ppo_update"), CRITIC_LOGGED if engine is _FSDP else {}
    classes = (CRITIC, CRITIC_CONFIG)
    boundary = _boundary("critic", method, classes, CRITIC_FAMILY, critic, numbers, engine, stage="value-loss")
    yield from _bound(target, boundary, method, engine)


def numbers_of_tokens(form: FullSequence) -> Computed:
    """The number of each response token in the batch, from 1, so that all labels differ; 0 at other positions."""

    def numbers(inputs: Inputs) -> torch.Tensor:
        every = torch.arange(1, inputs.batch.mask.numel() + 1).view_as(inputs.batch.mask)
        return form.lay_out(every, inputs).int()

    return Computed(frozenset({"length", "prompt_length"}), numbers, "lengths cannot be recovered from numbers")


def method_of(target: Target, owner: str, name: str) -> str:
    """The path of a trainer's method for a whole batch; it is private if the public method accepts a list."""
    path = f"{owner}._{name}"
    return path if target.has(path) or not target.has(f"{owner}.{name}") else f"{owner}.{name}"


def copies_inputs(target: Target) -> bool:
    """Whether the engine of the release copies the inputs of the loss, including tensors that have a gradient."""
    path = f"{ENGINE}.forward_backward_batch"
    return target.has(path) and not target.fails(path) and "asdict(" in inspect.getsource(target.find(path))


def trains_inline(target: Target) -> bool:
    """Whether the engine's update method can be imported; it computes the loss if the engine has no method for that."""
    return target.has(_INLINE.train) and not target.fails(_INLINE.train)


def _is_read(target: Target, entries: Mapping[str, Codec]) -> bool:
    """Whether the release's loss reads these entries of the data."""
    if not entries:
        return True
    source = inspect.getsource(target.find(LOSS)) if target.has(LOSS) and not target.fails(LOSS) else ""
    return all(name in source for name in entries)


def choose_platform(target: Target) -> None:
    """Let AReaL choose its platform now: at first use it imports packages that may be absent while a case runs."""
    if target.has(PLATFORM) and not target.fails(PLATFORM):
        getattr(target.find(PLATFORM), "device_type", "")


def _bound(target: Target, boundary: Boundary, method: str, engine: Engine) -> Iterator[Boundary | Unbound]:
    for path in (method, engine.train):
        if failing := target.fails(path) or ("" if target.has(path) else f"{path} is absent"):
            yield Unbound(boundary.path, boundary.stage, failing)
            return
    yield from bindable(target, boundary)


def _boundary(  # noqa: PLR0913 - the parts in which the updates differ
    name: str,
    method: str,
    classes: tuple[str, str],
    family: Family,
    data: Mapping[str, Codec],
    logged: Mapping[str, Output],
    engine: Engine,
    stage: Stage = "policy-loss",
) -> Boundary:
    trainer, config = classes
    supervised, rows = name == "sft", name == "rows"
    parts: dict[str, Codec] = {family.numbers[n]: Knob(n) for n in family.settings if n in family.numbers}
    parts |= {"mb_spec": SPLIT, **family.words}
    if not supervised:
        parts["ppo_n_minibatches"] = Constant(1)  # one optimizer step, so that the loss covers all rows
    if stage == "value-loss":
        parts["is_critic"] = Constant(value=True)
    configuration = Object(config, parts, shared=True)
    fake = Object(engine.make, {"owner": Constant(Function(engine.path)), "config": configuration})
    takes_config = {} if supervised else {"config": configuration}
    table: dict[str, Codec] = {
        "input_ids": numbers_of_tokens(FullSequence()),
        "attention_mask": AttentionMask(),
        "loss_mask": Column("mask", FullSequence() if supervised else _SHIFTED, torch.float32),
        "versions": TokenVersions(),
        **data,
    }
    result = Use("updated")
    return one_call(
        path=method if rows else f"{method} -> {engine.train}",
        stage="metric" if rows else stage,
        call=update,
        name="updated",
        arguments={
            "method": Constant(Function(method)),
            "trainer": Object(trainer, {**takes_config, "engine": fake}, shared=True),
            "data": Table(table),
            **constants(log=tuple(n.removesuffix("/avg").rpartition("/")[2] for n in logged), ranks=engine.ranks),
        },
        produced_by={"data": f"{ROLLOUT}; {_UPDATE}"},
        reads=frozenset({"reward", "mask", "length", "prompt_length"}) if rows else frozenset(),
        unused=frozenset({"version", "reward", "token_reward", "length", "prompt_length"}),
        outputs=({} if rows else {"loss": Output("", "", "loss", at=result["loss"])})
        | {n: replace(output, at=result["logged"][n]) for n, output in logged.items()},
        settings={f"{name}{', shared sequences' if engine.ranks > 1 else ''}": family.settings},
        claims=family.claims,
        reach=_reach("critic" if stage == "value-loss" else "actor", family)
        + (", a context-parallel size above 1" if engine.ranks > 1 else ""),
        domain=spread_ratios if name == "m2po" else None,
        requires=(padded_to_longest, has_trained_token, *((_no_ties,) if name == "m2po" else ())),
    )


def _reach(section: str, family: Family) -> str:
    """The options in AReaL's configuration that select this family."""
    numbers = {family.numbers[n]: value for n, value in family.settings.items() if n in family.numbers}
    words = {name: word.value for name, word in family.words.items() if isinstance(word, Constant)}
    options = [f"{section}.{name}={value}" for name, value in {**numbers, **words}.items()]
    return ", ".join([*options, *(["teacher.path"] if family.more else [])])


def spread_ratios(batch: Batch) -> Batch:
    """Make the log-ratios of the two older policies differ from token to token, as they do for sampled tokens."""
    if not _tied(batch):
        return batch
    steps = 0.0137 * torch.arange(1, batch.mask.numel() + 1).view_as(batch.mask)
    return with_columns(batch, rollout_logprob=batch.rollout_logprob + steps)


def _tied(batch: Batch) -> bool:
    """Whether two trained tokens have the same squared log-ratio, in the precision of a case."""
    squares = (batch.rollout_logprob - batch.old_logprob).double().square()[batch.mask].sort().values
    return bool((squares.diff() <= 1e-5 * squares[1:]).any())


def _no_ties(inputs: Inputs) -> str:
    """The reason to skip a batch with equal squared log-ratios of tokens (M2PO masks only the first); else empty."""
    tied = _tied(inputs.mini_batch)
    return "two tokens have the same squared log-ratio, and M2PO masks only the first" if tied else ""
