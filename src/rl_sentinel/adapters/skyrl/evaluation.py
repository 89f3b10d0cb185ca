"""SkyRL's evaluation: mean score and pass@n of generated responses, and the loop over the evaluation set."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Labels
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import (
    groups_are_equal,
    no_empty_response,
    prompts_are_contiguous,
)
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Earlier, constants
from rl_sentinel.adapters.skyrl.arguments import STEP_WISE, TRAINER, UIDS, config
from rl_sentinel.adapters.skyrl.rollout import GENERATED
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

METRICS = "skyrl.train.generators.utils.get_metrics_from_generator_output"
EVALUATE, EVAL = "skyrl.train.evaluate.evaluate", f"{TRAINER}.eval"
STEP_WISE_EVALUATE = "skyrl.train.evaluate.evaluate_step_wise"

SCORED = claims(
    "generators/utils.py, get_metrics_from_generator_output, docstring: pass@n from the rewards of an example's "
    "trajectories, which are grouped by uid",
    grouping="id",
)
_STEPS = (
    "skyrl_gym_generator.py, agent_loop, step_wise_trajectories: a row per step with rewards per token; evaluate.py, "
    "evaluate_step_wise, docstring: the reward of a trajectory is that of its last step"
)

#: Data-parallel workers. An evaluation only samples, so its prompts need not divide evenly among them.
_WORKERS = 2

_LOGGED: Mapping[str, Output] = {
    "avg_score": Output("", "reward", "outcome.mean", over="all"),
    "pass_at_n": Output("", "", "solved_prompts", over="all"),
    "mean_positive_reward": Output("", "reward", "positive_outcome.mean", over="all"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics from rewards per response and per token, and of the metrics of an evaluation run."""
    if target.has(METRICS):
        source = inspect.getsource(target.find(METRICS))
        logs = logged_scores(target)
        yield from bindable(target, _metrics("response", logs))
        if "isinstance(rewards[0], list)" in source:
            undefined = {"pass_at_n"} if "pass_at_n = None" in source else set()
            yield from bindable(target, _metrics("token", {n: o for n, o in logs.items() if n not in undefined}))
    for path in (EVALUATE if target.has(EVALUATE) else EVAL, STEP_WISE_EVALUATE):
        try:
            if target.has(path):
                yield from bindable(target, _evaluation(target, path))
        except Unbindable as why:
            yield Unbound.because(path, "metric", why)


def logged_scores(target: Target) -> Mapping[str, Output]:
    """The metrics that the release logs."""
    has_mean = "mean_positive_reward" in inspect.getsource(target.find(METRICS))
    return {name: output for name, output in _LOGGED.items() if has_mean or name != "mean_positive_reward"}


def metrics_by_name(metrics: Any) -> dict[str, float]:  # noqa: ANN401 - a dict, or a pair in older releases
    """The metrics as a dict."""
    names = ("avg_score", "pass_at_n")
    return dict(metrics) if isinstance(metrics, Mapping) else dict(zip(names, metrics, strict=True))


class Tokenizer:
    """A stub of the tokenizer, which decodes the example that is printed."""

    pad_token_id = eos_token_id = 0

    def decode(self, *_tokens: object, **_options: object) -> str:
        """An empty text."""
        return ""


class Generator:
    """A stub of the generator: it returns the rewards of a prompt's responses in order, and then 0."""

    def __init__(self, rewards: Mapping[str, list[float]]) -> None:
        """Store the rewards of each prompt."""
        self.rewards = rewards

    async def generate(self, request: Mapping[str, Any], **_options: object) -> dict[str, Any]:
        """A response of one token and a reward for each prompt of the request."""
        remaining = {name: list(rewards) for name, rewards in self.rewards.items()}
        prompts = [messages[0]["content"] for messages in request["prompts"]]
        ones = [[1] for _ in prompts]
        return {
            "prompt_token_ids": ones,
            "response_ids": ones,
            "rewards": [remaining[name].pop(0) if remaining[name] else 0.0 for name in prompts],
            "loss_masks": ones,
            "stop_reasons": ["stop"] * len(prompts),
            "rollout_metrics": {},
            "rollout_logprobs": None,
        }


class StepGenerator(Generator):
    """A :class:`Generator` with one row per step: trajectories have one to three steps, the last with the reward."""

    async def generate(self, request: Mapping[str, Any], **options: object) -> dict[str, Any]:
        """The steps of each trajectory, one after the other, with a reward per token."""
        whole = await super().generate(request, **options)
        steps = [(row, last) for row in range(len(whole["rewards"])) for last in _last_steps(row)]
        ones = [[1] for _ in steps]
        return whole | {
            "prompt_token_ids": ones,
            "response_ids": ones,
            "rewards": [[whole["rewards"][row] if last else 0.0] for row, last in steps],
            "loss_masks": ones,
            "stop_reasons": ["stop"] * len(steps),
            "trajectory_ids": [request["trajectory_ids"][row] for row, _ in steps],
            "is_last_step": [last for _, last in steps],
        }


def _last_steps(row: int) -> list[bool]:
    """Whether each step is the last of its trajectory; trajectories have 2, 3 and 1 steps in turn."""
    return [*[False] * ((row + 1) % 3), True]


def evaluate(  # noqa: PLR0913 - the function, objects that it needs, and the responses
    run: Callable[..., Any],
    stub: Callable[..., Generator],
    trainer: Any,  # noqa: ANN401 - the target's class
    cfg: Any,  # noqa: ANN401 - the target's class
    rewards: list[float],
    groups: list[int],
) -> dict[str, float]:
    """Evaluate in batches of at most two prompts, one per worker, and return the logged metrics.

    Training samples a different number of responses.
    """
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
    batches = [prompts[start : start + _WORKERS] for start in range(0, len(prompts), _WORKERS)]
    generator, tokenizer = stub(by_prompt), Tokenizer()
    if trainer is None:
        logged = asyncio.run(run(batches, generator, cfg, 0, tokenizer))
    else:
        worker = SimpleNamespace(actor_infos=[SimpleNamespace(rank=SimpleNamespace(dp_size=_WORKERS))])
        bare_trainer = bare_instance(
            trainer,
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
        logged = asyncio.run(run(bare_trainer))
    keys = {"avg_score": "avg_score", "pass_at_n": f"pass_at_{samples}", "mean_positive_reward": "mean_positive_reward"}
    return {
        f"{where}: {n}": logged[f"eval/{where}/{k}"]
        for where in ("all", "task")
        for n, k in keys.items()
        if f"eval/{where}/{k}" in logged
    }


def _per_token(inputs: Inputs) -> list[list[float]]:
    """The outcome on the last token of each response."""
    lengths = inputs.batch.length.tolist()
    return [[0.0] * (n - 1) + [r] for n, r in zip(lengths, inputs.batch.reward.tolist(), strict=True)]


def _metrics(per: str, logs: Mapping[str, Output]) -> Boundary:
    rewards: Codec = Labels("reward")
    if per == "token":
        rewards = Computed(frozenset({"reward", "length"}), _per_token, "the rewards are on the last tokens")
    output = Table({"response_ids": EachRow(RowTokens("token", "int")), "rewards": rewards})
    step = Step(
        call=METRICS,
        name="returned",
        arguments={"generator_output": output, "uids": UIDS},
        produced_by={"generator_output": GENERATED},
    )
    read = Step(call=metrics_by_name, name="metrics", arguments={"metrics": Earlier(Use("returned"))})
    return Boundary(
        path=METRICS,
        stage="metric",
        steps=(step, read),
        reads=frozenset({"reward", "group"}),
        outputs={n: Output("", o.unit, o.quantity, over=o.over, at=Use("metrics")[n]) for n, o in logs.items()},
        settings={f"rewards per {per}": {}},
        claims=SCORED,
        reach="every run",
        requires=(no_empty_response,),
    )


def _evaluation(target: Target, path: str) -> Boundary:
    step_wise = path == STEP_WISE_EVALUATE
    logs = logged_scores(target)
    return one_call(
        path=path,
        stage="metric",
        call=evaluate,
        name="logged",
        arguments={
            "run": Constant(Function(path)),
            **constants(
                stub=StepGenerator if step_wise else Generator, trainer=Function(TRAINER) if path == EVAL else None
            ),
            "cfg": config({}, {STEP_WISE: True} if step_wise else {}),
            "rewards": Labels("reward"),
            "groups": Labels("group"),
        },
        produced_by={
            "rewards": _STEPS if step_wise else GENERATED,
            "groups": "trainer.py, eval: a batch of prompts of the evaluation set",
        },
        reads=frozenset({"reward", "group"}),
        outputs={
            f"{where}: {n}": Output("", o.unit, o.quantity, over=o.over, at=Use("logged")[f"{where}: {n}"])
            for where in ("all", "task")
            for n, o in logs.items()
        },
        claims=SCORED,
        reach=f"{STEP_WISE}=true"
        if step_wise
        else "every evaluation; generator.eval_n_samples_per_prompt other than n_samples_per_prompt",
        requires=(prompts_are_contiguous, groups_are_equal),
    )
