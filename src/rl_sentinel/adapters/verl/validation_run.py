"""Boundary of verl's validation: prompts of two data sources in two batches, up to the logged metrics."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Labels, PromptIds
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.numbered_prompts import NumberedPrompts, collect, data_set_tokenizes
from rl_sentinel.adapters.verl.training_run import TRAINER, WIDTH, sampled
from rl_sentinel.adapters.verl.training_run_fakes import bare_trainer
from rl_sentinel.adapters.verl.validation import (
    ALWAYS,
    BOOTSTRAP,
    MOST,
    enumerate_draws,
    few_samples,
    shared_texts,
    statistics_by_name,
)
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

PATH = f"{TRAINER}._validate"

#: The data sources of the first prompt and of all others.
SOURCES = ("first", "other")

#: The setting of the number of samples per prompt.
SAMPLES = "actor_rollout_ref.rollout.val_kwargs.n"

#: Nothing is written to a file or to a table of samples.
QUIET: Mapping[str, Any] = {
    "trainer.validation_data_dir": None,
    "trainer.log_val_generations": 0,
    "trainer.val_generations_to_log_to_wandb": 0,
}

_PRODUCED = (
    "experimental/agent_loop/agent_loop.py, _postprocess: rm_scores, the reward at the last response token; older "
    "releases: the reward manager val_reward_fn"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the validation of the trainer, with several samples per prompt."""
    if target.has(PATH) and not target.fails(PATH):
        yield from try_bind(target, PATH, "metric", lambda: [_validation(target)])


def validate(  # noqa: PLR0913 - a run has several parts
    kind: Any,  # noqa: ANN401 - the trainer's class
    config: Any,  # noqa: ANN401 - its configuration
    rewards: list[float],
    groups: list[str],
    size: int,
    reward_model: bool,  # noqa: FBT001 - a setting
) -> dict[str, Any]:
    """Validate prompts of at most two sources in at most two batches; return the trainer's logs.

    ``rewards`` has the reward and ``groups`` the prompt of each sample; ``size`` is the number of samples of a prompt.
    ``reward_model`` says whether a reward model gives the rewards.
    """
    names = list(dict.fromkeys(groups))
    rewards_of = [[r for r, own in zip(rewards, groups, strict=True) if own == name] for name in names]

    def samples(numbers: list[int], greedy: list[bool]) -> dict[str, Tensor]:
        rows = sampled(numbers, greedy)
        for place, number in enumerate(numbers):
            rows["rm_scores"][place, WIDTH - 1] = rewards_of[number][numbers[:place].count(number) % size]
        return rows

    trainer = bare_trainer(kind, config, samples)
    trainer.use_rm = trainer.actor_rollout_wg.scores_later = reward_model
    trainer.tokenizer.decode = shared_text
    prompts = NumberedPrompts(len(names), tokenized=data_set_tokenizes(), sources=SOURCES)
    rows, half = [prompts[number] for number in range(len(names))], -(-len(names) // 2)
    trainer.val_dataloader = [collect(part) for part in (rows[:half], rows[half:]) if part]
    logged: dict[str, Any] = trainer._validate()  # noqa: SLF001 - the trainer's own
    return logged


def whole_prompts(batch: Batch) -> Batch:
    """Make each pair of rows a prompt, and drop an odd last row.

    A batch with one row is unchanged, and one whose prompts are contiguous with the same small number of samples.
    """
    sizes = torch.unique_consecutive(batch.group, return_counts=True)[1].tolist()
    contiguous = len(sizes) == len(set(batch.group.tolist()))
    if batch.rows == 1 or (contiguous and len(set(sizes)) == 1 and MOST >= sizes[0] > 1):
        return batch
    even = take_rows(batch, torch.arange(batch.rows // 2 * 2))
    return with_columns(even, group=torch.arange(even.rows) // 2)


def shared_text(ids: Tensor, **_about: object) -> str:
    """The text of a prompt or a response; two prompts with different images have the same text."""
    return f"<image> question {(int(ids[-1]) + 1) // 2}"


def statistics_of_sources(metrics: dict[str, Any], samples: int, prompts: int) -> dict[str, float]:
    """The statistics by name, averaged over sources; the weight of a source is its number of prompts."""
    counts = {SOURCES[0]: 1, SOURCES[1]: prompts - 1}
    total: dict[str, float] = {}
    for source, count in counts.items():
        own = _of_source(metrics, source, samples) if count else {}
        total |= {name: total.get(name, 0.0) + value * count / prompts for name, value in own.items()}
    return total


def _of_source(metrics: dict[str, Any], source: str, samples: int) -> dict[str, float]:
    """The statistics of one source; the first releases log the mean only."""
    plain = metrics.get(f"val/test_score/{source}")
    if plain is not None:
        return {"mean": float(plain)}
    own = {name: value for name, value in metrics.items() if f"/{source}/" in name or name == source}
    return statistics_by_name(own, samples)


def _validation(target: Target) -> Boundary:
    step = Step(
        call=validate,
        name="logged",
        arguments={
            "kind": Constant(Function(TRAINER)),
            "config": validation_config(target),
            "rewards": Labels("reward"),
            "groups": PromptIds("strings-list"),
            "size": Derived(size_of_groups),
            "reward_model": Knob("reward_model", default=False),
        },
        fakes={BOOTSTRAP: enumerate_draws} if target.has(BOOTSTRAP) else {},
        produced_by={"rewards": _PRODUCED},
    )
    # Before the reward loop, validation is by rules even where a reward model trains.
    scores = "reward_loop_manager" in inspect.getsource(target.find(TRAINER))
    return statistics_boundary(
        PATH,
        step,
        _logged(target),
        {"two sources": {}, **({"a reward model": {"reward_model": True}} if scores else {})},
        f"every validation; rollout.val_kwargs.n above 1{shared_texts(target)}; a reward model: "
        "reward.reward_model.enable=True",
    )


def statistics_boundary(
    path: str, step: Step, outputs: Mapping[str, Output], settings: Mapping[str, Settings], reach: str
) -> Boundary:
    """The boundary of the statistics in what ``step`` logs as ``logged``, over the prompts of both sources."""
    read = Step(
        call=statistics_of_sources,
        name="statistics",
        arguments={
            "metrics": Earlier(Use("logged")),
            "samples": Derived(size_of_groups),
            "prompts": Derived(lambda inputs: len(group_sizes(inputs))),
        },
    )
    return Boundary(
        path=path,
        stage="metric",
        steps=(step, read),
        reads=frozenset({"reward", "group"}),
        outputs={name: replace(output, at=Use("statistics")[name]) for name, output in outputs.items()},
        settings=settings,
        claims=claims(
            "docs/examples/config.rst, rollout.val_kwargs.n: the number of samples of a prompt in validation; "
            "metric_utils.py, process_validation_metrics: averaged across the prompts of a data source",
            grouping="id",
        ),
        reach=reach,
        requires=(prompts_are_contiguous, groups_are_equal, few_samples),
        domain=whole_prompts,
    )


def validation_config(target: Target) -> Codec:
    """The configuration of a validation that writes nothing, with the number of samples of the batch."""
    return default_config(target, "", {**constants(**QUIET), SAMPLES: Derived(size_of_groups)}, resolved=True)


def _logged(target: Target) -> Mapping[str, Output]:
    """The statistics that the release logs."""
    by_source_only = "test_score" in inspect.getsource(target.find(PATH))
    return {"mean": ALWAYS["mean"]} if by_source_only else ALWAYS


def size_of_groups(inputs: Inputs) -> int:
    """The number of samples of each prompt."""
    return group_sizes(inputs)[0]
