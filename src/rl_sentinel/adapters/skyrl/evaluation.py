"""SkyRL's evaluation: scores and pass@n of a generator's output, and the run over the evaluation set that logs them."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import (
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Earlier
from rl_sentinel.adapters.skyrl.arguments import TRAINER, UIDS, config
from rl_sentinel.adapters.skyrl.rollout import GENERATED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

METRICS = "skyrl.train.generators.utils.get_metrics_from_generator_output"
EVALUATE, EVAL = "skyrl.train.evaluate.evaluate", f"{TRAINER}.eval"

_CLAIMS = claims(
    "generators/utils.py, get_metrics_from_generator_output, docstring: pass@n by the rewards of an example's "
    "trajectories, which are found by uid",
    grouping="id",
)
_LOGGED: Mapping[str, Output] = {
    "avg_score": Output("", "reward", "outcome.mean", over="all"),
    "pass_at_n": Output("", "", "solved_prompts", over="all"),
    "mean_positive_reward": Output("", "reward", "positive_outcome.mean", over="all"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The metrics of outputs with a reward per response and per token, and of a run over the evaluation set."""
    if target.has(METRICS):
        source = inspect.getsource(target.find(METRICS))
        logs = _LOGGED if "mean_positive_reward" in source else _first_two()
        yield from bindable(target, _metrics("response", logs))
        if "isinstance(rewards[0], list)" in source:
            yield from bindable(target, _metrics("token", logs))
    path = EVALUATE if target.has(EVALUATE) else EVAL
    try:
        if target.has(path):
            yield from bindable(target, _evaluated(target, path))
    except Unbindable as why:
        yield Unbound(path, "metric", str(why))


def _first_two() -> Mapping[str, Output]:
    return {name: output for name, output in _LOGGED.items() if name != "mean_positive_reward"}


def named(found: Any) -> dict[str, float]:  # noqa: ANN401 - a dict, or a pair in older releases
    """The metrics by name."""
    return dict(found) if isinstance(found, Mapping) else dict(zip(("avg_score", "pass_at_n"), found, strict=True))


class Tokenizer:
    """A tokenizer for the printed example."""

    pad_token_id = eos_token_id = 0

    def decode(self, *_tokens: object, **_options: object) -> str:
        """No text."""
        return ""


class Generator:
    """A generator that returns the rewards of a prompt's responses, in order, for as many samples as are asked for."""

    def __init__(self, rewards: Mapping[str, list[float]]) -> None:
        """Take the rewards of each prompt."""
        self.rewards = rewards

    async def generate(self, request: Mapping[str, Any], **_options: object) -> dict[str, Any]:
        """One token per response, and its reward."""
        left = {name: list(own) for name, own in self.rewards.items()}
        asked = [messages[0]["content"] for messages in request["prompts"]]
        ones = [[1] for _ in asked]
        return {
            "prompt_token_ids": ones,
            "response_ids": ones,
            "rewards": [left[name].pop(0) if left[name] else 0.0 for name in asked],
            "loss_masks": ones,
            "stop_reasons": ["stop"] * len(asked),
            "rollout_metrics": {},
            "rollout_logprobs": None,
        }


def evaluated(
    run: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - the target's class
    cfg: Any,  # noqa: ANN401 - the target's class
    rewards: list[float],
    groups: list[int],
) -> dict[str, float]:
    """Evaluate prompts in batches of one and the rest; the number of samples is that of evaluation alone."""
    by_prompt: dict[str, list[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        by_prompt.setdefault(str(group), []).append(reward)
    samples = len(rewards) // len(by_prompt)
    cfg.generator.eval_n_samples_per_prompt, cfg.generator.n_samples_per_prompt = samples, samples + 1
    prompts = [
        {
            "prompt": [{"role": "user", "content": name}],
            "env_class": None,
            "env_extras": {"data_source": "task"},
            "uid": name,
        }
        for name in by_prompt
    ]
    batches = [batch for batch in (prompts[:1], prompts[1:]) if batch]
    generator, tokenizer = Generator(by_prompt), Tokenizer()
    if trainer is None:
        found = asyncio.run(run(batches, generator, cfg, 0, tokenizer))
    else:
        worker = SimpleNamespace(actor_infos=[SimpleNamespace(rank=SimpleNamespace(dp_size=1))])
        made = trainer.__new__(trainer)
        vars(made).update(
            cfg=cfg,
            eval_dataloader=batches,
            generator=generator,
            generate=generator.generate,
            tokenizer=tokenizer,
            all_metrics={},
            global_step=0,
            policy_model=worker,
            critic_model=None,
            ref_model=None,
            reward_model=None,
        )
        found = asyncio.run(run(made))
    keys = {"avg_score": "avg_score", "pass_at_n": f"pass_at_{samples}", "mean_positive_reward": "mean_positive_reward"}
    return {
        f"{where}: {n}": found[f"eval/{where}/{k}"]
        for where in ("all", "task")
        for n, k in keys.items()
        if f"eval/{where}/{k}" in found
    }


def _per_token(inputs: Inputs) -> list[list[float]]:
    """The outcome on the last token of each response."""
    lengths = inputs.batch.length.tolist()
    return [[0.0] * (n - 1) + [r] for n, r in zip(lengths, inputs.batch.reward.tolist(), strict=True)]


def _metrics(per: str, logs: Mapping[str, Output]) -> Boundary:
    rewards: Codec = Labels("reward")
    if per == "token":
        rewards = Computed(frozenset({"reward", "length"}), _per_token, "the rewards are on last tokens")
    output = Table({"response_ids": EachRow(RowTokens("token", "int")), "rewards": rewards})
    step = Step(
        call=METRICS,
        name="found",
        arguments={"generator_output": output, "uids": UIDS},
        produced_by={"generator_output": GENERATED},
    )
    read = Step(call=named, name="metrics", arguments={"found": Earlier(Use("found"))})
    return Boundary(
        path=METRICS,
        stage="metric",
        steps=(step, read),
        reads=frozenset({"reward", "group"}),
        outputs={n: Output("", o.unit, o.quantity, over=o.over, at=Use("metrics")[n]) for n, o in logs.items()},
        settings={f"rewards per {per}": {}},
        claims=_CLAIMS,
        reach="every run",
        requires=(no_empty_response,),
    )


def _evaluated(target: Target, path: str) -> Boundary:
    own = path == EVAL
    step = Step(
        call=evaluated,
        name="found",
        arguments={
            "run": Constant(Function(path)),
            "trainer": Constant(Function(TRAINER) if own else None),
            "cfg": config({}),
            "rewards": Labels("reward"),
            "groups": Labels("group"),
        },
        produced_by={"rewards": GENERATED, "groups": "trainer.py, eval: a batch of prompts of the evaluation set"},
    )
    source = inspect.getsource(target.find(METRICS))
    logs = _LOGGED if "mean_positive_reward" in source else _first_two()
    return Boundary(
        path=path,
        stage="metric",
        steps=(step,),
        reads=frozenset({"reward", "group"}),
        outputs={
            f"{where}: {n}": Output("", o.unit, o.quantity, over=o.over, at=Use("found")[f"{where}: {n}"])
            for where in ("all", "task")
            for n, o in logs.items()
        },
        claims=_CLAIMS,
        reach="every evaluation; generator.eval_n_samples_per_prompt other than n_samples_per_prompt",
        requires=(prompts_are_contiguous, groups_are_equal),
    )
