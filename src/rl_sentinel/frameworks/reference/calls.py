"""How functions of the library are called: soundly, and with columns that exclude each other."""

from collections.abc import Mapping
from typing import Any

import torch

from rl_sentinel.frameworks.reference.path_calls import OF_PATH
from rl_sentinel.frameworks.reference.stored_calls import SOUND, STORED, Calls

#: A sound turn, of two tokens.
TURN: Mapping[str, Any] = {
    "trajectory": "one",
    "prompt": (1,),
    "response": (2, 3),
    "trained": (True, True),
    "token_reward": (0.0, 1.0),
    "logprob": (-1.0, -2.0),
    "last": True,
}

_TURNS: Calls = {
    "sound": SOUND,
    "a mask short of its response": {"trained": (True,)},
    "a reward short of its response": {"token_reward": (1.0,)},
    "log-probs short of their response": {"logprob": (-1.0,)},
}

#: Way of calling -> trajectory and end mark of each turn.
ORDERS: Mapping[str, list[tuple[str, bool]]] = {
    "sound": [("one", False), ("one", True), ("two", True)],
    "sound, of one turn": [("one", True)],
    "no end": [("one", False), ("one", False)],
    "no end before another": [("one", False), ("two", True)],
    "an end before the last": [("one", True), ("one", True)],
    "two pieces": [("one", True), ("two", True), ("one", True)],
}

#: What is known of the trajectory of one turn, and how its turns are laid out.
KNOWN: Mapping[str, Any] = {
    "reward": {"one": 1.0},
    "group": {"one": 3},
    "scored": {"one": True},
    "merged": True,
    "padding": 0,
}

LAID: Calls = {
    "sound": SOUND,
    "sound, apart and padded below 0": {"merged": False, "padding": -100},
    "no steps": {"steps": ()},
    **{f"{n} of another trajectory": {n: {"two": KNOWN[n]["one"]}} for n in ("reward", "group", "scored")},
    **{f"{n} as a list": {n: [1]} for n in ("reward", "group", "scored")},
    "reward a word": {"reward": {"one": "much"}},
    "group between two": {"group": {"one": 0.5}},
    "scored a number": {"scored": {"one": 1}},
    "merged a number": {"merged": 1},
    "padding a word": {"padding": "none"},
    "padding between two": {"padding": 0.5},
}

STEPS: Calls = {
    "sound": SOUND,
    "no last step": {"last": torch.tensor([False, False, True])},
    "two last steps": {"last": torch.tensor([True, True, True])},
    "two last steps, and none elsewhere": {"last": torch.tensor([True, True, False])},
    "two prompts": {"group": torch.tensor([0, 1, 1])},
}

_LENGTHS: Calls = {
    "sound": SOUND,
    "sound, of one token": {"mode": "token-sum", "length": 1},
    "no length": {"mode": "token-sum", "length": None},
    "a length of none": {"length": 4},
    "a length below 1": {"mode": "token-sum", "length": 0},
    "sound, of prompts": {"mode": "prompt-mean", "group": torch.tensor([4])},
    "no prompts": {"mode": "prompt-mean", "group": None},
    "a prompt too many": {"mode": "prompt-mean", "group": torch.tensor([4, 4])},
}

#: Trained tokens of prompts, beside two rows of two.
OF_PROMPTS: Calls = {
    "sound": SOUND,
    "sound, more in other parts": {"prompt_tokens": torch.tensor([9, 4])},
    "sound, of rows alone": {"mode": "token-mean", "prompt_tokens": None},
    "no tokens of prompts": {"prompt_tokens": None},
    "tokens of prompts with another mode": {"mode": "token-mean"},
    "tokens of other rows": {"prompt_tokens": torch.tensor([4])},
    "fewer tokens than a row has": {"prompt_tokens": torch.tensor([1, 2])},
    "tokens of prompts in two axes": {"prompt_tokens": torch.tensor([[4, 4]])},
    "tokens of prompts that are no counts": {"prompt_tokens": torch.tensor([4.0, 4.0])},
}

#: Values of two rows of two tokens.
_VALUED: Mapping[str, Any] = {
    "value": torch.ones(2, 2),
    "mask": torch.ones(2, 2).bool(),
    "turn": torch.tensor([[4, 4], [1, 2]]),
}

_IN_TURN: Calls = {
    "sound": SOUND,
    "sound, fallen where nothing is trained": {
        "turn": torch.tensor([[4, 3], [1, 2]]),
        "mask": torch.tensor([[True, False], [True, True]]),
    },
    "a turn that falls": {"turn": torch.tensor([[4, 4], [2, 1]])},
}

_LOGITS: Calls = {
    "sound": SOUND,
    "sound, nothing wanted": {"token": torch.tensor([[0, 3]]), "mask": torch.tensor([[True, False]])},
    "a token beyond the vocabulary": {"token": torch.tensor([[0, 3]])},
    "a token before it": {"token": torch.tensor([[0, -1]])},
    "a token too few": {"token": torch.tensor([[0]])},
    "a mask too short": {"mask": torch.tensor([[True]])},
    "no vocabulary": {"logits": torch.zeros(1, 2, 0)},
    "sound, a vocabulary of one": {
        "logits": torch.zeros(1, 2, 1),
        "token": torch.tensor([[0, 3]]),
        "mask": torch.tensor([[True, False]]),
    },
    "a row of logits too few": {"logits": torch.zeros(1, 1, 3)},
}

_SHARES: Calls = {
    "sound": SOUND,
    "sound, of all": {"share": 1.0},
    "share 0": {"share": 0.0},
    "share above 1": {"share": 1.5},
}

_BOUNDS: Calls = {**_SHARES, "bounds equal": {"low": 3.0}, "bounds exchanged": {"low": 4.0}}

_PROMPTS: Calls = {"sound": SOUND, "no prompts": {"prompts": 0}}

_SIZES: Mapping[str, Any] = {"mask": torch.ones(1, 2).bool()}

#: Versions of one row, and how they may be compared.
_VERSIONS: Mapping[str, Any] = {"version": torch.tensor([[0, 0]]), "mask": torch.ones(1, 2).bool(), "current": 0}

_BEHIND: Calls = {
    "sound": SOUND,
    "sound, of another version where nothing trains": {
        "version": torch.tensor([[0, 9]]),
        "mask": torch.tensor([[True, False]]),
    },
    "a version after the current one": {"version": torch.tensor([[0, 1]])},
    "a current version before the first": {"current": -1},
}

#: Function -> what it is called with, and how it may be called otherwise.
CALLS: Mapping[str, tuple[Mapping[str, Any], Calls]] = {
    "merging.Step": (TURN, _TURNS),
    **OF_PATH,
    "steps.last_steps": (
        {"trajectory": torch.tensor([4, 4, 2]), "last": torch.tensor([False, True, True])},
        {n: c for n, c in STEPS.items() if "group" not in c},
    ),
    "minibatches.aggregation": ({"mode": "token-mean", "length": None, **_SIZES}, _LENGTHS),
    "advantage.turn_level_gae.turn_values": (_VALUED, _IN_TURN),
    "advantage.turn_level_gae.advantages": (
        {**_VALUED, "token_reward": torch.ones(2, 2), "discount": 0.9, "decay": 0.5},
        _IN_TURN,
    ),
    "minibatches.prompt_mean": (
        {"tokens": torch.tensor([2, 0]), "group": torch.tensor([7, 3])},
        {"sound": SOUND, "fewer than no tokens": {"tokens": torch.tensor([2, -1])}},
    ),
    "minibatches.prompt_minibatches": ({"group": torch.tensor([7, 3]), "prompts": 1, "generator": None}, _PROMPTS),
    "covariance.largest": ({"covariance": torch.ones(1, 2), "share": 0.4, **_SIZES}, _SHARES),
    "covariance.drawn_between": (
        {"covariance": torch.ones(1, 2), "low": 0.0, "high": 3.0, "share": 0.4, "generator": None, **_SIZES},
        _BOUNDS,
    ),
    **{
        f"logprob.{name}": (
            {"logits": torch.zeros(1, 2, 3), "token": torch.tensor([[0, 2]]), "temperature": 1.0, **_SIZES},
            _LOGITS,
        )
        for name in ("logprobs", "logprobs_and_entropy")
    },
    **STORED,
    "staleness.staleness": (_VERSIONS, _BEHIND),
    "staleness.fresh_rows": ({**_VERSIONS, "most": 0.0}, {**_BEHIND, "fewer than no updates behind": {"most": -1.0}}),
    "reward.suppressed": (
        {"reward": torch.ones(2), "live": torch.ones(2).bool(), "scored": torch.tensor([True, False])},
        {
            "sound": SOUND,
            "sound, no number where nothing is scored": {"reward": torch.tensor([1.0, torch.nan])},
            "sound, no number where nothing trains": {
                "reward": torch.tensor([torch.nan, 1.0]),
                "live": torch.tensor([False, True]),
            },
            "no number where it counts": {"reward": torch.tensor([torch.nan, 1.0])},
        },
    ),
    "reward.overlong_penalty": (
        {"length": torch.tensor([0, 9]), "limit": 5, "buffer": 3, "factor": 0.5},
        {"sound": SOUND, "a length below 0": {"length": torch.tensor([9, -1])}},
    ),
    "advantage.maxrl.advantages": (
        {"reward": torch.tensor([0.0, 1.0]), "group": torch.zeros(2).long(), "live": torch.ones(2).bool()},
        {
            "sound": SOUND,
            "sound, below 0 where nothing trains": {
                "reward": torch.tensor([-1.0, 1.0]),
                "live": torch.tensor([False, True]),
            },
            "a reward below 0": {"reward": torch.tensor([-0.5, 1.0])},
        },
    ),
    "advantage.gdpo.advantages": (
        {
            "reward_parts": torch.tensor([[0.0, 1.0], [1.0, 2.0]]),
            "group": torch.zeros(2).long(),
            "live": torch.ones(2).bool(),
            "weight": torch.ones(2),
            "epsilon": 0.0,
        },
        {
            "sound": SOUND,
            "a weight too few": {"weight": torch.ones(1)},
            "a weight too many": {"weight": torch.ones(3)},
        },
    ),
}
