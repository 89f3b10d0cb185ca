"""TRL's online DPO: the training step on sampled pairs. It maps known log-probs and rewards to loss and metrics."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.pairs import even_rows, rows_are_pairs
from rl_sentinel.adapters.kit.requirements import enough_words, equal_micro_batches, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob
from rl_sentinel.adapters.source_reads import remembered
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import truncated_fill_width
from rl_sentinel.adapters.trl.loop_codecs import ENDED, sampled, trains_as_sampled
from rl_sentinel.adapters.trl.loop_fakes import CONTEXT, FIRST_TOKEN, Responses
from rl_sentinel.adapters.trl.pair_samplers import TWO, parts, run_step, sampler_step, train_sampled_pairs
from rl_sentinel.adapters.trl.pair_sampling_fakes import PROMPTS
from rl_sentinel.adapters.trl.preferences import LOGGED as OF_PAIRS
from rl_sentinel.adapters.trl.preferences import PAIRED, SCALED, trainer_path
from rl_sentinel.adapters.trl.release import fields_of, source_of
from rl_sentinel.adapters.trl.rollout_fakes import FIRST_WORD
from rl_sentinel.adapters.trl.scoring import no_extra_padding
from rl_sentinel.adapters.trl.tiny_trainer import RowRewards
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec, Inputs

ONLINE = "trl.trainer.online_dpo_trainer.OnlineDPOTrainer"
ONLINE_EXPERIMENTAL = "trl.experimental.online_dpo.online_dpo_trainer.OnlineDPOTrainer"

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

#: The columns of both policies; rows 2n and 2n + 1 are the responses to a prompt.
PAIRS: Mapping[str, Codec] = {
    "prompts": Derived(lambda inputs: [row // TWO for row in range(inputs.batch.rows)]),
    "logprobs": Column("logprob"),
    "ref_logprobs": Column("ref_logprob"),
}

#: The penalty for a response that does not end, in releases with the setting; it is larger than the margin of a pair.
PENALTY: Settings = {"penalty": 1.5}

#: What the text of ``training_step`` contains -> what compares the responses.
SCORERS: Mapping[str, str] = {"get_reward(": "model", "judge.judge(": "judge"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step: with reward functions or, in earlier releases, with a model or a judge."""
    path = f"{trainer_path(target, ONLINE, ONLINE_EXPERIMENTAL)}.training_step"
    if not target.has(path):
        return
    if why := target.fails(path):
        yield Unbound(path, "policy-loss", why)
        return
    trainer = path.rpartition(".")[0]
    if "training_step" not in vars(target.find(trainer)):
        return  # a loop in one method
    source = source_of(target.find(path))
    if "_calculate_rewards_from_functions" in source:
        yield from bindable(target, _loss(path), _metrics(path))
        return
    scorers = [scored_by for text, scored_by in SCORERS.items() if text in source]
    if not scorers:
        yield Unbound(path, "policy-loss", "the training step calls neither reward functions, nor a model, nor a judge")
        return
    for scored_by in scorers:
        yield from bindable(target, _scored(path, scored_by, {"beta": 0.5}))
    if "model" in scorers:
        yield from bindable(target, _logged(path, source_of(target.find(trainer))))
        if "missing_eos_penalty" in fields_of(target, ONLINE):
            yield from bindable(target, _scored(path, "model", {"beta": 0.5, **PENALTY}))


def train_pairs(entry: Callable[..., Any], trainer: Any, micro_batches: int, sampled: Responses) -> Any:  # noqa: ANN401 - a trainer
    """Run an optimizer step on micro-batches of pairs; return the sum of differentiated losses, and mean metrics."""

    def start(known: Responses) -> dict[str, Any]:
        order = [2 * pair + (pair + half) % TWO for half in range(TWO) for pair in range(len(known.lengths) // TWO)]
        trainer.reward_funcs = [RowRewards("first", 1.0, [float(row % TWO == 0) for row in order])]
        prompts = torch.tensor([[FIRST_TOKEN] * (CONTEXT - 1) + [FIRST_WORD + row // TWO] for row in order])
        generated = (prompts, torch.ones_like(prompts), known.ids[order], known.mask[order], None)[: _results(entry)]
        trainer._generate = lambda *_arguments, made=generated: made  # noqa: SLF001 - the engine's call
        return {"prompt": ["w1"] * (len(order) // TWO)}

    return run_step(entry, trainer, parts(sampled, micro_batches), start)


@remembered
def _results(entry: Callable[..., Any]) -> int:
    """How many results of ``_generate`` the step of a release takes: four, and in newer ones inputs for images."""
    match = re.search(r"^(.*) = self\._generate\(", inspect.getsource(inspect.unwrap(entry)), re.MULTILINE)
    return 1 + match[1].count(",") if match else 5


def distinct(inputs: Inputs) -> str:
    """The reason to skip a batch where both responses of a pair consist of EOS only; empty otherwise.

    The fake model distinguishes the responses of a prompt by their first token.
    """
    alone = inputs.batch.length < TWO
    pairs = len(alone) % TWO == 0 and bool(alone.reshape(-1, TWO).all(1).any())
    return "both responses of a pair consist of EOS only" if pairs else ""


def few_pairs(inputs: Inputs) -> str:
    """The reason to skip a batch with more prompts than the data set has; empty otherwise."""
    return enough_words(inputs.batch.rows, TWO * PROMPTS)


def as_sampled_pairs(batch: Batch) -> Batch:
    """The batch without an odd last row, unless it is the only one, and with every token trained."""
    return sampled(even_rows(batch))


REQUIRED = (
    rows_are_pairs,
    equal_micro_batches,
    no_empty_response,
    trains_as_sampled,
    no_extra_padding,
    distinct,
    few_pairs,
)


def _of_functions(path: str) -> Step:
    return sampler_step(path, train_pairs, {"beta": "beta"}, PAIRS, producer=_PRODUCER)


def loss_boundary(  # noqa: PLR0913 - the parts in which they differ
    path: str,
    step: Step,
    name: str,
    settings: Settings,
    claimed: Claims,
    reach: str,
    *,
    requires: tuple[Callable[[Inputs], str], ...] = REQUIRED,
    domain: Callable[[Batch], Batch] = as_sampled_pairs,
) -> Boundary:
    """The boundary of the loss of a training step on sampled responses."""
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(step,),
        outputs={"loss": Output("", "", "loss", at=Use("trained")["loss"])},
        settings={name: settings},
        claims=claimed,
        reach=reach,
        requires=(*requires, *((truncated_fill_width,) if "penalty" in settings else ())),
        domain=domain,
    )


def scored_reach(settings: Settings, scored_by: str) -> str:
    """The configuration that reaches a step whose responses a model or a judge compares."""
    return "missing_eos_penalty set" if "penalty" in settings else f"every step, with a {scored_by} for the rewards"


def _loss(path: str) -> Boundary:
    claimed = PAIRED | SCALED | claims(_DOCS, algorithm="dpo")
    return loss_boundary(path, _of_functions(path), "default", {"beta": 0.5}, claimed, "every step")


def read_from_logs(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """These outputs, read from the logged metrics of a step."""
    place = Use("trained")["logs"]
    return {
        name: Output("", one.unit, one.quantity, over=one.over, at=place[name], form=Number())
        for name, one in outputs.items()
    }


def _metrics(path: str) -> Boundary:
    """The boundary of the logged metrics of sampled responses."""
    return Boundary(
        path=path,
        stage="metric",
        steps=(_of_functions(path),),
        outputs=read_from_logs(LOGGED),
        settings={"logged": {"beta": 0.5}},
        claims=claims(_DOCS, output_pairs={"objective/kl": "logprob against ref_logprob"}),
        reach="every step",
        requires=REQUIRED,
        domain=as_sampled_pairs,
    )


def pair_metrics(source: str, docs: str) -> tuple[dict[str, Output], Claims]:
    """The logged metrics of pairs that the source text names, and what ``docs`` says that they are."""
    known = {name: algorithm for name, algorithm in OF_PAIRS.items() if f'"{name}"' in source}
    others = {name: one for name, one in LOGGED.items() if f'"{name}"' in source}
    claimed = claims(docs, output_algorithms=known)
    if "objective/kl" in others:
        claimed |= claims(docs, output_pairs={"objective/kl": "logprob against ref_logprob"})
    return read_from_logs(others | {name: Output("", "nats") for name in known}), claimed


def _from_generation(path: str, scored_by: str, settings: Settings) -> Step:
    known = {**PAIRS, **({"ended": ENDED} if "penalty" in settings else {})}
    fields = {"beta": "beta", **({"missing_eos_penalty": "penalty"} if "penalty" in settings else {})}
    return sampler_step(
        path,
        train_sampled_pairs,
        fields,
        known,
        scored_by=scored_by,
        more={"penalty": Knob("penalty", default=0.0)},
        producer=_PRODUCER,
    )


def _scored(path: str, scored_by: str, settings: Settings) -> Boundary:
    """The boundary of the loss on responses that the policy generates and a model or a judge compares."""
    step = _from_generation(path, scored_by, settings)
    name = f"{scored_by}, missing EOS" if "penalty" in settings else scored_by
    claimed = PAIRED | SCALED | claims(_DOCS, algorithm="dpo")
    return loss_boundary(path, step, name, settings, claimed, scored_reach(settings, scored_by))


def _logged(path: str, source: str) -> Boundary:
    """The boundary of the logged metrics of pairs, in releases where a model computes the rewards."""
    return logged_pairs(path, _from_generation(path, "model", {}), {"beta": 0.5}, source, _DOCS)


def logged_pairs(path: str, step: Step, settings: Settings, source: str, docs: str) -> Boundary:
    """The boundary of the logged metrics of pairs, which ``docs`` describes."""
    outputs, claimed = pair_metrics(source, docs)
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(step,),
        outputs=outputs,
        settings={"logged": settings},
        claims=PAIRED | claimed,
        reach="every step",
        requires=REQUIRED,
        domain=as_sampled_pairs,
    )
