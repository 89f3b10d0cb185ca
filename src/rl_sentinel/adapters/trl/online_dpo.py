"""TRL's online DPO: the training step on sampled pairs. It maps known log-probs and rewards to loss and metrics."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.pairs import even_rows, rows_are_pairs
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, IfSet
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.loop_codecs import flat, sampled, trains_as_sampled
from rl_sentinel.adapters.trl.loop_fakes import CONTEXT, FIRST_PROMPT, FIRST_TOKEN, Policy, Responses
from rl_sentinel.adapters.trl.loop_trainer import LoopAccelerator
from rl_sentinel.adapters.trl.preference_trainers import configuration_of
from rl_sentinel.adapters.trl.preferences import PAIRED, SCALED
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.adapters.trl.tiny_trainer import RowRewards, make_model, make_tokenizer
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

ONLINE = "trl.trainer.online_dpo_trainer.OnlineDPOTrainer"

#: Responses of a prompt.
TWO = 2

_DOCS = (
    "docs/source/online_dpo_trainer.md: pairs of sampled completions, the one with the higher reward is preferred; "
    "logged metrics: objective/kl is the mean KL between the model and the reference"
)
_PRODUCER = "online_dpo_trainer.py, training_step: the first completions of all prompts, then the second ones"

#: Logged name -> output.
LOGGED: Mapping[str, Output] = {
    "objective/kl": Output("", "nats", "kl.k1", over="live"),
    "objective/entropy": Output("", "nats", "", over="live"),
    "objective/non_score_reward": Output("", "reward", "", over="live"),
}


_ENDED = Derived(lambda inputs: torch.ones(inputs.batch.rows, dtype=torch.bool))
_PAIRS = Derived(lambda inputs: [row // TWO for row in range(inputs.batch.rows)])
_NONE = Derived(lambda inputs: torch.zeros(inputs.batch.rows))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step, in releases where functions compute the rewards."""
    path = target.locate(f"{ONLINE}.training_step")
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(path, "policy-loss", why)
        return
    if "_calculate_rewards_from_functions" not in source_of(target.find(path)):
        yield Unbound(path, "policy-loss", "the rewards come from a model or a judge, which has no fake")
        return
    yield from bindable(target, _loss(path), _metrics(path))


def make_online(kind: Callable[..., Any], **settings: Any) -> Any:  # noqa: ANN401 - a trainer
    """An online DPO trainer, built by its constructor."""
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    args, _ = configuration_of(kind, {**settings, "max_length": 64, "gradient_accumulation_steps": TWO})
    trainer = kind(
        model=make_model(),
        ref_model=make_model(),
        reward_funcs=RowRewards("first", 1.0),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "w1"}] * TWO),
        processing_class=make_tokenizer(),
    )
    trainer.divides = trainer.accelerator.gradient_accumulation_steps == TWO  # by the release of transformers
    trainer.policies = [Policy(trainer.model.config, 1.0, trains=trains) for trains in (True, False)]
    return trainer


def train_pairs(entry: Callable[..., Any], trainer: Any, micro_batches: int, sampled_pairs: Responses) -> Any:  # noqa: ANN401 - a trainer
    """Run an optimizer step on micro-batches of pairs; return the sum of differentiated losses, and mean metrics."""
    policy, trainer.ref_model = trainer.policies
    trainer.accelerator = LoopAccelerator(getattr(trainer.accelerator, "own", trainer.accelerator))
    trainer.accelerator.steps = micro_batches if trainer.divides else 1
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps = micro_batches
    for values in trainer.stats.values():
        values.clear()
    for known in parts(sampled_pairs, micro_batches):
        policy.begin(known)
        trainer.ref_model.begin(known)
        order = [2 * pair + (pair + half) % TWO for half in range(TWO) for pair in range(len(known.lengths) // TWO)]
        trainer.reward_funcs = [RowRewards("first", 1.0, [float(row % TWO == 0) for row in order])]
        prompts = torch.tensor([[FIRST_TOKEN] * (CONTEXT - 1) + [FIRST_PROMPT + row // TWO] for row in order])
        generated = prompts, torch.ones_like(prompts), known.ids[order], known.mask[order], None
        trainer._generate = lambda *_arguments, made=generated: made  # noqa: SLF001 - the engine's call
        entry(trainer, policy, {"prompt": ["w1"] * (len(order) // TWO)}, None)
    logs = {name: sum(values) / len(values) for name, values in trainer.stats.items() if values}
    return {"loss": torch.stack(trainer.accelerator.losses).sum(), "logs": logs}


def parts(known: Responses, count: int) -> list[Responses]:
    """Split the responses into equal micro-batches, in the order of the rows."""
    columns = {field.name: getattr(known, field.name) for field in fields(Responses)}
    size = len(known.lengths) // count
    cuts = [slice(start, start + size) for start in range(0, size * count, size)]
    return [Responses(**{name: column[cut] for name, column in columns.items()}) for cut in cuts]


def _step(path: str) -> Step:
    known = {
        "mask": Column("mask", dtype=torch.int64),
        "ended": _ENDED,
        "prompts": _PAIRS,
        "logprobs": Column("logprob"),
        "old_logprobs": flat(-1.0),
        "ref_logprobs": Column("ref_logprob"),
        "values": flat(0.0),
        "old_values": flat(0.0),
        "scores": _NONE,
    }
    trainer = Object(
        make_online,
        {"kind": Constant(Function(path.rpartition(".")[0])), "beta": IfSet("beta")},
        at={"kind": "__class__", "beta": "beta"},
        shared=True,
    )
    return Step(
        call=train_pairs,
        name="trained",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": trainer,
            "micro_batches": MICRO_BATCHES,
            "sampled_pairs": Object(Responses, known),
        },
        produced_by={"sampled_pairs": _PRODUCER},
    )


def distinct(inputs: Inputs) -> str:
    """The reason to skip a batch where both responses of a pair consist of EOS only; empty otherwise.

    The fake model distinguishes the responses of a prompt by their first token.
    """
    alone = inputs.batch.length < TWO
    pairs = len(alone) % TWO == 0 and bool(alone.reshape(-1, TWO).all(1).any())
    return "both responses of a pair consist of EOS only" if pairs else ""


def as_sampled_pairs(batch: Batch) -> Batch:
    """The batch without an odd last row, unless it is the only one, and with every token trained."""
    return sampled(even_rows(batch))


_REQUIRED = (rows_are_pairs, equal_micro_batches, no_empty_response, trains_as_sampled, no_extra_padding, distinct)


def _loss(path: str) -> Boundary:
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(_step(path),),
        outputs={"loss": Output("", "", "loss", at=Use("trained")["loss"])},
        settings={"default": {"beta": 0.5}},
        claims=PAIRED | SCALED | claims(_DOCS, algorithm="dpo"),
        reach="every step",
        requires=_REQUIRED,
        domain=as_sampled_pairs,
    )


def _metrics(path: str) -> Boundary:
    """The boundary of the logged metrics of sampled responses."""
    place = Use("trained")["logs"]
    return Boundary(
        path=path,
        stage="metric",
        steps=(_step(path),),
        outputs={
            name: Output("", one.unit, one.quantity, over=one.over, at=place[name], form=Number())
            for name, one in LOGGED.items()
        },
        settings={"logged": {"beta": 0.5}},
        claims=claims(_DOCS, output_pairs={"objective/kl": "logprob against ref_logprob"}),
        reach="every step",
        requires=_REQUIRED,
        domain=as_sampled_pairs,
    )
