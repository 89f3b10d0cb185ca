"""TRL's SDPO from sampled completions to advantages and logged numbers, over two ranks."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import Completions, Prompts, truncated_fill_width
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.rollout_fakes import generated_rows
from rl_sentinel.adapters.trl.scoring import FAMILIES, rollout_conditions
from rl_sentinel.adapters.trl.sdpo import TRAINER
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING, RowRewards
from rl_sentinel.adapters.trl.two_ranks import EachRank
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

PATH = f"{TRAINER}._prepare_training_batch"

#: Logged name -> the output that it is compared with.
LOGGED: Mapping[str, Output] = {
    "self_distillation/reward_mean": Output("", "reward", "outcome.mean", over="all"),
    "self_distillation/reward_std": Output("", "reward", "outcome.std", over="all"),
    "self_distillation/reward_min": Output("", "reward", "outcome.min", over="all"),
    "self_distillation/reward_max": Output("", "reward", "outcome.max", over="all"),
    "self_distillation/rewards/first": Output("", "reward", "outcome.mean", over="all"),
    "completions/mean_length": Output("", "tokens", "response_length.mean", over="all"),
    "completions/min_length": Output("", "tokens", "response_length.min", over="all"),
    "completions/max_length": Output("", "tokens", "response_length.max", over="all"),
    "completions/clipped_ratio": Output("", "", "unscored.mean", over="all"),
}

_ROWS = "sdpo_trainer.py, _get_train_sampler: num_generations consecutive rows per prompt"
_LOGS = "sdpo_trainer.py, _record_reward_diagnostics and _record_completion_metrics: over the rows of all processes"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages with each type of reward scaling, and the metrics that are logged with them."""
    if not target.has(PATH) or target.fails(TRAINER):
        return
    source = source_of(target.find(PATH))
    for name, (settings, _) in FAMILIES.items():
        if name != "truncated masked" and f'"{settings.get("scale_rewards", "none")}"' in source:
            yield from bindable(target, _advantages(name))
    yield from bindable(target, _logged(target))


def make_scorer(  # noqa: PLR0913 - the parts of a trainer that score a rollout
    kind: type,
    scale: str,
    completions: list[list[int]],
    rewards: list[float],
    generations: int,
    rank: int,
    ranks: int,
) -> Any:  # noqa: ANN401 - a trainer
    """A bare trainer with the attributes that the scoring method reads; it samples these completions."""
    tokenizer = SimpleNamespace(pad_token_id=PADDING, eos_token_id=END, batch_decode=decoded)
    length = torch.tensor([len(ids) for ids in completions])
    width = int(length.max())
    batch = {
        "prompt_ids": torch.full((len(completions), 1), 4),
        "prompt_mask": torch.ones(len(completions), 1, dtype=torch.int64),
        "completion_ids": generated_rows(torch.zeros(len(completions), 0, dtype=torch.int64), completions),
        "completion_mask": (torch.arange(width) < length.unsqueeze(1)).long(),
        "raw_completion_lengths": length,
    }
    teacher = {"teacher_input_ids": None, "teacher_attention_mask": None, "self_distillation_mask": None}
    return bare_instance(
        kind,
        rollout=SimpleNamespace(completions=completions, rewards=rewards),
        sample_rollouts=partial(sampled, batch),
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        eos_token_ids=[END],
        reward_funcs=[RowRewards("first", 1.0, rewards)],
        reward_func_names=["first"],
        reward_processing_classes=[None],
        reward_weights=torch.ones(1),
        scale_rewards=scale,
        num_generations=generations,
        args=SimpleNamespace(diagnostics_flat_tolerance=1e-8, diagnostics_warning_interval=0, report_to=[]),
        accelerator=RankAccelerator(SimpleNamespace(device=torch.device("cpu")), rank, ranks),
        model=SimpleNamespace(training=True),
        state=SimpleNamespace(global_step=0),
        teacher_context_builder=SimpleNamespace(build=partial(sampled, teacher), last_metrics={}),
        _dispatch_self_distillation_callback=nothing,
        _warn_on_inactive_self_distillation=nothing,
        _warn_on_degenerate_diagnostics=nothing,
        _diagnostic_counters={mode: defaultdict(int) for mode in ("train", "eval")},
        _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
    )


def decoded(ids: Sequence[object], **_options: object) -> list[str]:
    """Decode every completion to the same text, in place of the tokenizer."""
    return ["w1"] * len(ids)


def sampled(batch: Mapping[str, Any], *_rows: object, **_more: object) -> dict[str, Any]:
    """Return a known batch, in place of methods that sample completions or write teacher prompts."""
    return dict(batch)


def score_completions(entry: Callable[..., Any], trainers: list[Any], inputs: list[dict[str, str]]) -> dict[str, Any]:
    """Score the completions of each rank.

    Returns ``advantages`` of all rows, and ``trainer``: the trainer of rank 0.
    """
    size = len(inputs) // len(trainers)
    parts = [inputs[rank * size : (rank + 1) * size] for rank in range(len(trainers))]
    scored = run_on_ranks(len(trainers), lambda rank: entry(trainers[rank], parts[rank])["advantages"])
    return {"advantages": torch.cat(scored), "trainer": trainers[0]}


def _step(scale: str) -> Step:
    parts = {
        "kind": Constant(Function(TRAINER)),
        "scale": Constant(scale),
        "completions": Completions(cut="scored"),
        "rewards": Column("reward", PerRow("list")),
        "generations": Derived(lambda inputs: max(group_sizes(Inputs(inputs.mini_batch)))),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1]),
    }
    at = {"kind": "__class__", "scale": "scale_rewards", "generations": "num_generations"}
    at |= {name: f"rollout.{name}" for name in ("completions", "rewards")}
    at |= {"rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    return Step(
        call=score_completions,
        name="scored",
        arguments={
            "entry": Constant(Function(PATH)),
            "trainers": EachRank(Object(make_scorer, parts, at=at)),
            "inputs": Prompts(),
        },
        produced_by={"inputs": _ROWS},
    )


def _advantages(name: str) -> Boundary:
    settings, claimed = FAMILIES[name]
    scale = str(settings.get("scale_rewards", "group"))
    return Boundary(
        path=PATH,
        stage="advantage",
        steps=(_step(scale),),
        unused=frozenset({"scored"}),
        outputs={"advantage": Output("B", "reward", "advantage", at=Use("scored")["advantages"])},
        settings={name: {**settings, "epsilon": 1e-4}},
        claims=claimed,
        reach=f"SDPOTrainer, scale_rewards={scale}",
        requires=(*rollout_conditions(masked=True), truncated_fill_width),
    )


def _logged(target: Target) -> Boundary:
    source = "".join(
        source_of(target.find(f"{TRAINER}.{method}"))
        for method in ("_record_reward_diagnostics", "_record_completion_metrics")
        if target.has(f"{TRAINER}.{method}")
    )
    place = Use("scored")["trainer"].attribute("_metrics")["train"]
    logged = {n: o for n, o in LOGGED.items() if f'"{n.replace("first", "{reward_name}")}"' in source}
    return replace(
        _advantages("default"),
        stage="metric",
        reads=frozenset(),
        unused=frozenset(),
        outputs={name: replace(output, at=place[name], form=Logged()) for name, output in logged.items()},
        settings={"logged": {}},
        claims=claims(_LOGS),
    )
