"""TRL's trainers that sample pairs of responses: build one, and run its optimizer step on known responses."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch

from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet, constants
from rl_sentinel.adapters.trl.loop_codecs import responses
from rl_sentinel.adapters.trl.loop_fakes import Responses
from rl_sentinel.adapters.trl.loop_trainer import LoopAccelerator, config_of
from rl_sentinel.adapters.trl.pair_sampling_fakes import (
    OF_MIXTURE,
    PROMPTS,
    PairJudge,
    PairScorer,
    Scores,
    TextPolicy,
    prompt_text,
)
from rl_sentinel.adapters.trl.preference_trainers import configuration_of
from rl_sentinel.adapters.trl.tiny_trainer import RowRewards, make_model, make_tokenizer
from rl_sentinel.core.boundary import Step
from rl_sentinel.core.call import Function
from rl_sentinel.core.codec import Codec

#: Responses of a prompt.
TWO = 2

#: Fields of the configuration, if a release has them; the number of accumulation steps is set again before each step.
SIZES: Mapping[str, int] = {"max_length": 64, "gradient_accumulation_steps": TWO}


def make_pair_sampler(
    kind: Callable[..., Any],
    scored_by: str = "functions",
    opening: str = "",
    **settings: Any,  # noqa: ANN401 - of its configuration
) -> Any:  # noqa: ANN401 - a trainer
    """A trainer that samples pairs, built by its constructor.

    ``scored_by`` says what compares the responses: reward ``functions``, a reward ``model`` or a ``judge``.
    ``opening`` is the first word of all prompts.
    """
    from datasets import Dataset  # noqa: PLC0415 - in the target's overlay

    known = {field.name for field in dataclasses.fields(config_of(kind))}
    args, _ = configuration_of(kind, {**settings, **{name: size for name, size in SIZES.items() if name in known}})
    rows = [{"prompt": prompt_text(number, opening)} for number in range(PROMPTS)]
    model, tokenizer = make_model(), make_tokenizer()
    given = {
        "model": model,
        "ref_model": make_model(),
        "args": args,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": tokenizer,
        "tokenizer": tokenizer,
        **_scorers(scored_by, model.config),
    }
    parameters = inspect.signature(kind.__init__).parameters
    if "reward_funcs" in parameters and "reward_funcs" in given:
        given.pop("reward_model", None)
    trainer = kind(**{name: given[name] for name in parameters if name in given})
    trainer.divides = trainer.accelerator.gradient_accumulation_steps == TWO  # by the release of transformers
    trainer.policies = [TextPolicy(model.config, 1.0, trains=trains) for trains in (True, False)]
    return trainer


def _scorers(scored_by: str, config: Any) -> dict[str, Any]:  # noqa: ANN401 - of transformers
    """Arguments of a constructor for what scores the responses."""
    if scored_by == "functions":
        return {"reward_funcs": RowRewards("first", 1.0)}
    if scored_by == "judge":
        return {"judge": PairJudge()}
    model, tokenizer = PairScorer(config), make_tokenizer()
    names = ("reward_processing_class", "reward_processing_classes")
    return {"reward_model": model, "reward_funcs": model, **dict.fromkeys(names, tokenizer)}


def scorer_of(trainer: Any) -> Any:  # noqa: ANN401 - a trainer, a fake
    """The fake reward model or judge of a trainer."""
    found = (getattr(trainer, name, None) for name in ("reward_model", "reward_funcs", "judge"))
    return next(one for one in found if isinstance(one, PairScorer | PairJudge))


def parts(known: Responses, count: int) -> list[Responses]:
    """Split the responses into equal micro-batches, in the order of the rows."""
    columns = {field.name: getattr(known, field.name) for field in fields(Responses)}
    size = len(known.lengths) // count
    cuts = [slice(start, start + size) for start in range(0, size * count, size)]
    return [Responses(**{name: column[cut] for name, column in columns.items()}) for cut in cuts]


def run_step(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: list[Responses],
    start: Callable[[Responses], dict[str, Any]],
) -> dict[str, Any]:
    """Run an optimizer step; return the sum of the differentiated losses, and the means of the logged metrics.

    ``start`` prepares the fakes for a micro-batch and returns the inputs of ``entry``, the trainer's training step.
    """
    policy, trainer.ref_model = trainer.policies
    trainer.accelerator = LoopAccelerator(getattr(trainer.accelerator, "own", trainer.accelerator))
    trainer.accelerator.steps = len(micro_batches) if trainer.divides else 1
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps = len(micro_batches)
    for values in trainer.stats.values():
        values.clear()
    more = [None] if "num_items_in_batch" in inspect.signature(entry).parameters else []
    for known in micro_batches:
        policy.begin(known)
        trainer.ref_model.begin(known)
        entry(trainer, policy, start(known), *more)
    logs = {name: sum(values) / len(values) for name, values in trainer.stats.items() if values}
    return {"loss": torch.stack(trainer.accelerator.losses).sum(), "logs": logs}


def prompts_of(trainer: Any, count: int) -> dict[str, Any]:  # noqa: ANN401 - a trainer
    """A batch of prompts, as the trainer's collator makes it of its data set."""
    batch: dict[str, Any] = trainer.data_collator([dict(trainer.train_dataset[row]) for row in range(count)])
    return batch


def raw_scores(known: Responses, scores: list[float], penalty: float) -> Scores:
    """The score of each response before ``penalty`` is subtracted from those that do not end."""
    ended = known.ended.tolist()
    return {key: scores[row] + (0.0 if ended[row] else penalty) for key, row in known.rows.items()}


def train_both(  # noqa: PLR0913 - a method, a trainer, its batch, and which response wins
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    sampled: Responses,
    *,
    reference_wins: bool,
    penalty: float,
) -> dict[str, Any]:
    """Train on pairs of a response of the policy and one of the reference, where the even row of a pair wins."""

    def start(known: Responses) -> dict[str, Any]:
        pairs, own = len(known.lengths) // TWO, int(reference_wins)
        for policy, side in zip(trainer.policies, (own, 1 - own), strict=True):
            policy.samples([[TWO * pair + side] for pair in range(pairs)])
        scorer_of(trainer).table = raw_scores(known, [1.0, 0.0] * pairs, penalty)
        return prompts_of(trainer, pairs)

    return run_step(entry, trainer, parts(sampled, micro_batches), start)


def train_against_mixture(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    sampled: Responses,
    *,
    penalty: float,
) -> dict[str, Any]:
    """Train on one response per prompt, which wins against the mixture's response with the probability ``scores``."""

    def start(known: Responses) -> dict[str, Any]:
        rows = len(known.lengths)
        trainer.policies[0].samples([[row] for row in range(rows)])
        of_mixture = dict.fromkeys(((row, OF_MIXTURE) for row in range(rows)), 0.0)
        scorer_of(trainer).table = {**raw_scores(known, known.scores.logit().tolist(), penalty), **of_mixture}
        return prompts_of(trainer, rows)

    return run_step(entry, trainer, parts(sampled, micro_batches), start)


def train_sampled_pairs(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    sampled: Responses,
    *,
    penalty: float,
) -> dict[str, Any]:
    """Train on two responses of the policy per prompt.

    The even row of each pair wins. It is sampled first in every other pair, and second in the rest.
    """

    def start(known: Responses) -> dict[str, Any]:
        pairs = len(known.lengths) // TWO
        trainer.policies[0].samples([[TWO * n + n % TWO, TWO * n + 1 - n % TWO] for n in range(pairs)])
        scorer_of(trainer).table = raw_scores(known, [1.0, 0.0] * pairs, penalty)
        return prompts_of(trainer, pairs)

    return run_step(entry, trainer, parts(sampled, micro_batches), start)


def sampler_step(  # noqa: PLR0913 - a method, how it is called, and what it reads
    path: str,
    call: Callable[..., Any],
    fields_of_settings: Mapping[str, str],
    known: Mapping[str, Codec],
    *,
    scored_by: str = "functions",
    opening: str = "",
    producer: str,
    more: Mapping[str, Codec] | None = None,
    fakes: Mapping[str, Callable[..., Any]] | None = None,
) -> Step:
    """A step that trains on sampled responses.

    Args:
        path: the training step.
        call: the function that runs it.
        fields_of_settings: field of the configuration, which is also an attribute of the trainer -> setting.
        known: the parts of the responses that the boundary reads.
        scored_by: what compares the responses.
        opening: the first word of all prompts.
        producer: who makes the responses.
        more: further arguments of ``call``.
        fakes: fakes of the step.
    """
    built: dict[str, Codec] = {"kind": Constant(Function(path.rpartition(".")[0]))}
    built |= constants(scored_by=scored_by, opening=opening)
    built |= {name: IfSet(setting) for name, setting in fields_of_settings.items()}
    at = dict.fromkeys(("kind", "scored_by", "opening"), "__class__") | {name: name for name in fields_of_settings}
    return Step(
        call=call,
        name="trained",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": Object(make_pair_sampler, built, at=at, shared=True),
            "micro_batches": MICRO_BATCHES,
            "sampled": responses(**known),
            **(more or {}),
        },
        fakes=fakes or {},
        produced_by={"sampled": producer},
    )
