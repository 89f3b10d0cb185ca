"""Boundaries of verl's interactions: the reward of a conversation is that of the assistant's last reply."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Interaction that scores replies -> the end of a reply that it scores; ``{}`` stands for the answer.
INTERACTIONS: Mapping[str, str] = {"verl.interactions.gsm8k_interaction.Gsm8kInteraction": "so #### {}"}

_DOCS = (
    "interactions/base.py, generate_response: the score of the current turn, which follows a reply of the assistant; "
    "docs/sglang_multiturn/interaction_system.rst: the score of the answer that the model gives"
)
_CALLED = (
    "sglang_rollout.py and tool_agent_loop.py: start_interaction with interaction_kwargs of the data set, and after "
    "each reply generate_response with all messages, whose text becomes the user's next message"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the interactions of a release, until 2026."""
    for owner in INTERACTIONS:
        path = f"{owner}.generate_response"
        if not target.has(path):
            continue
        if why := target.fails(owner):
            yield Unbound(path, "batch", why)
        else:
            yield from try_bind(target, path, "batch", partial(_interaction, owner, path))


async def scores_of_turns(owner: type, question: str, replies: list[str], answer: str) -> list[float]:
    """The score of each turn of a conversation, in which the interaction writes the user's messages."""
    interaction: Any = owner({"name": "interaction"})
    about = {"name": "interaction", "query": question, "ground_truth": answer}
    await interaction.start_interaction("request", **about)
    messages, scores = [{"role": "user", "content": question}], []
    for reply in replies:
        messages.append({"role": "assistant", "content": reply})
        _, text, score, _ = await interaction.generate_response("request", [dict(one) for one in messages], **about)
        messages.append({"role": "user", "content": text})
        scores.append(float(score))
    return scores


def rewarded(owner: type, end: str, tokens: Tensor, rewards: Tensor) -> list[float]:
    """Let two replies to a question be scored: a wrong one, then a right one if the row has a positive reward.

    Returns the row's reward, or how many of the replies have a positive score if it is not the right reply alone.
    """

    def of(row: int, reward: float) -> float:
        answers = [row + 3, row + 2 if reward > 0 else row + 4]
        text = " ".join(map(str, tokens[row].tolist()))
        replies = [f"{text} {end.format(answer)}" for answer in answers]
        scores = asyncio.run(scores_of_turns(owner, "How many are there?", replies, str(row + 2)))
        passed = [score > 0 for score in scores]
        return reward if passed == [False, reward > 0] else float(sum(passed))

    return [of(row, reward) for row, reward in enumerate(rewards.tolist())]


def _interaction(owner: str, path: str) -> Iterator[Boundary]:
    yield one_call(
        path=path,
        stage="batch",
        call=rewarded,
        name="rewarded",
        arguments={
            "owner": Constant(Function(owner)),
            "end": Constant(INTERACTIONS[owner]),
            "tokens": Column("token"),
            "rewards": Column("reward"),
        },
        produced_by={"owner": _CALLED},
        unused=frozenset({"token"}),
        outputs={"reward": Output("B", "reward", "reward", at=Use("rewarded"), form=PerRow("list"))},
        settings={"two turns": {}},
        claims=claims(_DOCS, conserves=True),
        reach="multi_turn.interaction_config_path=FILE, with this interaction",
    )
