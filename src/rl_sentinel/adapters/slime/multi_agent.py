"""slime's multi-agent example, which only source checkouts contain: the training sample of each agent's response."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.scripted_sampling import WRONG, fit_to_length
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.slime.generation import ONE_VERSION, all_train, room_of, samples_of, train_all
from rl_sentinel.adapters.slime.rollout_fakes import Words, arguments
from rl_sentinel.adapters.slime.samples import SAMPLE
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = "examples.multi_agent.agent_system.generate_response"

#: The key of the agent whose responses are collected.
_AGENT = "solver"

_DOCS = (
    "agent_system.py, generate_response: the tokens and log-probs of the engine's reply are appended to a copy of the "
    "sample, which is trained; the reward is set later"
)
_PRODUCER = (
    "agent_system.py, run_agent_system: a copy of the sample and the prompt of an agent; its samples are trained"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training sample that one agent's response becomes."""
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, _responses())


def respond(
    generate: Callable[..., Any], sample: Callable[..., Any], prompts: list[list[dict[str, Any]]], room: int
) -> dict[str, list[Any]]:
    """Let an agent respond in each row; return reward, tokens, mask and log-probs of its sample.

    The log-probs are infinite if the sample has none. Without a sample, reward and tokens are :data:`WRONG`.
    """
    groups, server = samples_of(sample, prompts)
    server.room = room
    columns: dict[str, list[Any]] = {"rewards": [], "tokens": [], "masks": [], "logprobs": []}
    rows = [row for prompt in prompts for row in prompt]
    for number, (one, row) in enumerate(zip([one for group in groups for one in group], rows, strict=True)):
        one.reward = row["reward"]
        run = arguments(room, 1, rollout_max_context_len=room + 1000)
        run.sampling_params = {"max_new_tokens": room}
        run.tokenizer, run.sample, run.results_dict = Words(), one, {_AGENT: []}
        with replaced_globals(generate.__globals__, post=server.post):
            asyncio.run(generate(run, one.prompt, _AGENT))
        made = next(iter(run.results_dict[_AGENT]), SimpleNamespace(reward=WRONG, tokens=[], response_length=0))
        for name, value in _read(made, row, server.responses[number].prompt).items():
            columns[name].append(value)
    return columns


def _read(made: Any, row: dict[str, Any], prompt: list[int]) -> dict[str, Any]:  # noqa: ANN401 - a sample
    size, length = len(row["tokens"]), int(made.response_length)
    start = len(made.tokens) - length
    tokens = list(made.tokens[start:]) if list(made.tokens[:start]) == prompt else []
    mask = getattr(made, "loss_mask", None)
    return {
        "rewards": float(made.reward),
        "tokens": fit_to_length(tokens, size, WRONG),
        "masks": torch.tensor(([True] * size if mask is None else [bool(m) for m in mask] + [False] * size)[:size]),
        "logprobs": fit_to_length(list(getattr(made, "rollout_log_probs", None) or []), size, float("inf")),
    }


def _responses() -> Boundary:
    outputs = row_outputs(Use("made"), "reward", "token", "mask", "rollout_logprob")
    return one_call(
        path=PATH,
        stage="batch",
        call=respond,
        name="made",
        arguments={
            **functions(generate=PATH, sample=SAMPLE),
            "prompts": EachPrompt(EachRow(Table(ONE_VERSION))),
            "room": Derived(room_of),
        },
        produced_by={"prompts": _PRODUCER},
        reads=frozenset({"token", "reward", "mask", "rollout_logprob", "group"}),
        outputs={"reward": outputs.pop("reward"), **outputs},
        settings={"one agent": {}},
        domain=train_all,
        claims=claims(_DOCS, conserves=True),
        reach="--custom-generate-function-path examples.multi_agent.rollout_with_multi_agents"
        ".generate_with_multi_agents",
        requires=(no_empty_response, prompts_are_contiguous, all_train),
    )
