"""AReaL's cache of an agent's model calls: the reward of each turn, discounted, and one training row per turn."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.areal.conversations import INTERACTION, RESPONSE
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt, EachRow, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response, prompts_are_contiguous
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

CACHE = "areal.experimental.openai.cache.InteractionCache"

#: Setting -> discount of a reward per earlier turn.
SETTINGS: Mapping[str, Settings] = {"undiscounted": {"turn_discount": 1.0}, "discounted": {"turn_discount": 0.5}}

_DOCS = (
    "openai/cache.py, apply_reward_discount: reward[i] += reward[i + 1] * turn_discount; export_interactions, style "
    "'individual': all cached turns; openai/types.py, to_tensor_dict: each turn's own tokens are trained"
)
_PRODUCER = (
    "openai/client.py: each model call is one entry, with the messages before it; openai/proxy/workflow.py: "
    "apply_reward_discount, then export_interactions(style='individual'); the agent sets rewards whose discounted "
    "sums are the rewards of the rows"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training rows of sessions: the responses of a prompt are the turns of one session."""
    if not target.has(f"{CACHE}.apply_reward_discount") or not target.has(RESPONSE) or not target.has(INTERACTION):
        return
    if why := target.fails(CACHE) or target.fails(INTERACTION):
        yield Unbound(CACHE, "batch", why)
    elif "output_message_list" in {one.name for one in fields(target.find(INTERACTION))}:
        yield from bindable(target, _sessions())


def export_sessions(
    cache: Callable[..., Any],
    interaction: Callable[..., Any],
    response: Callable[..., Any],
    prompts: list[list[dict[str, Any]]],
    turn_discount: float,
) -> dict[str, list[Any]]:
    """Export the training row of each turn, in the order of the turns; a lost turn has an infinite reward."""
    columns: dict[str, list[Any]] = {"tokens": [], "masks": [], "logprobs": [], "versions": [], "rewards": []}
    for turns in prompts:
        session = cache()
        messages: list[dict[str, Any]] = [{"role": "user", "content": "question"}]
        for number, row in enumerate(turns):
            name = f"turn-{number}"
            one = interaction(
                messages=list(messages), completion=SimpleNamespace(id=name, created=number), chat_template_type="hf"
            )
            session[name] = one
            one.model_response = response(
                input_tokens=list(row["prompt"]),
                output_tokens=list(row["tokens"]),
                output_logprobs=list(row["logprobs"]),
                output_versions=list(row["versions"]),
                stop_reason="stop",
            )
            one.output_message_list = [{"role": "assistant", "content": f"answer {number}"}]
            messages += [*one.output_message_list, {"role": "user", "content": f"more {number}"}]
            later = turns[number + 1]["reward"] if number + 1 < len(turns) else 0.0
            session.set_reward(name, row["reward"] - turn_discount * later)
        session.apply_reward_discount(turn_discount=turn_discount)
        exported = session.export_interactions(style="individual")
        for number, row in enumerate(turns):
            turn = exported.get(f"turn-{number}")
            for name, value in _read(row, {} if turn is None else turn.to_tensor_dict()).items():
                columns[name].append(value)
    return columns


def _read(row: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    start, whole = len(row["prompt"]), len(row["prompt"]) + len(row["tokens"])
    names = ("input_ids", "loss_mask", "logprobs", "versions", "attention_mask")
    if not data or any(data[name].shape != (1, whole) for name in names):
        lost = torch.full((len(row["tokens"]),), -1)
        masks = lost.new_zeros(len(lost), dtype=torch.bool)
        return {"tokens": lost, "masks": masks, "logprobs": lost.float(), "versions": lost, "rewards": float("inf")}
    masks = data["loss_mask"][0].bool()
    return {
        "tokens": data["input_ids"][0, start:],
        "masks": masks[start:] & ~masks[:start].any() & data["attention_mask"].all(),
        "logprobs": data["logprobs"][0, start:],
        "versions": data["versions"][0, start:],
        "rewards": float(data["rewards"][0]),
    }


def train_all(batch: Batch) -> Batch:
    """Train all tokens of each turn."""
    return with_columns(batch, mask=batch.valid)


def all_train(inputs: Inputs) -> str:
    """The reason to skip a batch with an untrained token of a turn; empty otherwise."""
    same = torch.equal(inputs.batch.mask, inputs.batch.valid)
    return "" if same else "a turn has a token that is not trained"


def _sessions() -> Boundary:
    row = Table(row_fields("prompt", "tokens", "logprobs", "versions", "reward"))
    return one_call(
        path=f"{CACHE}.export_interactions",
        stage="batch",
        call=export_sessions,
        name="exported",
        arguments={
            **functions(cache=CACHE, interaction=INTERACTION, response=RESPONSE),
            "prompts": EachPrompt(EachRow(row)),
            "turn_discount": Knob("turn_discount"),
        },
        produced_by={"prompts": _PRODUCER},
        reads=frozenset({"token", "rollout_logprob", "version", "reward", "mask", "group"}),
        outputs=row_outputs(Use("exported"), "rollout_logprob", "token", "mask", "version", "reward"),
        settings=SETTINGS,
        domain=train_all,
        claims=claims(_DOCS, conserves=True),
        reach="agents through the OpenAI client or proxy, export style 'individual'",
        requires=(no_empty_response, prompts_are_contiguous, all_train),
    )
