"""How functions of the library are called: soundly, and with columns that exclude each other."""

from collections.abc import Mapping
from typing import Any

import torch

#: Way of calling -> what of a sound call is given instead.
Calls = Mapping[str, Mapping[str, Any]]

_SOUND: Mapping[str, Any] = {}

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
    "sound": _SOUND,
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
    "sound": _SOUND,
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
    "sound": _SOUND,
    "no last step": {"last": torch.tensor([False, False, True])},
    "two last steps": {"last": torch.tensor([True, True, True])},
    "two last steps, and none elsewhere": {"last": torch.tensor([True, True, False])},
    "two prompts": {"group": torch.tensor([0, 1, 1])},
}

_LENGTHS: Calls = {
    "sound": _SOUND,
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
    "sound": _SOUND,
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
    "sound": _SOUND,
    "sound, fallen where nothing is trained": {
        "turn": torch.tensor([[4, 3], [1, 2]]),
        "mask": torch.tensor([[True, False], [True, True]]),
    },
    "a turn that falls": {"turn": torch.tensor([[4, 4], [2, 1]])},
}

_LOGITS: Calls = {
    "sound": _SOUND,
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
    "sound": _SOUND,
    "sound, of all": {"share": 1.0},
    "share 0": {"share": 0.0},
    "share above 1": {"share": 1.5},
}

_BOUNDS: Calls = {**_SHARES, "bounds equal": {"low": 3.0}, "bounds exchanged": {"low": 4.0}}

_PROMPTS: Calls = {"sound": _SOUND, "no prompts": {"prompts": 0}}

_SIZES: Mapping[str, Any] = {"mask": torch.ones(1, 2).bool()}

_PADDED: Calls = {
    "sound": _SOUND,
    "sound, wider than the longest row": {"width": 5},
    "sound, nothing": {"values": torch.ones(0), "length": torch.ones(0).long(), "width": 0},
    "sound, far wider": {"width": 300},
    "a row longer than the width": {"width": 1},
    "a width that no number says": {"width": 2**63},
    "a width of numbers": {"width": 2.5},
    "values in two axes": {"values": torch.ones(1, 3)},
    "a token too many": {"length": torch.tensor([1, 1])},
}

_SEGMENTS: Calls = {
    "sound": _SOUND,
    "sound, a row of nothing": {"length": torch.tensor([3, 0])},
    "a mask of numbers": {"mask": torch.ones(3)},
    "a mask of padded rows": {"mask": torch.ones(1, 3).bool(), "length": torch.tensor([1])},
    "lengths of numbers": {"length": torch.tensor([2.0, 1.0])},
    "lengths of facts": {"length": torch.ones(3).bool()},
    "lengths in two axes": {"length": torch.tensor([[2], [1]])},
    "a length below 0": {"length": torch.tensor([4, -1])},
    "a token too many": {"length": torch.tensor([1, 1])},
}

_PACKED: Calls = {
    "sound": _SOUND,
    "sound, a row of nothing": {"length": torch.tensor([3, 0])},
    "values in one axis": {"values": torch.ones(2)},
    "values of a row too few": {"values": torch.ones(1, 3)},
    "values of a row too many": {"values": torch.ones(3, 3)},
    "a length beyond the width": {"length": torch.tensor([4, 1])},
    "a length below 0": {"length": torch.tensor([-1, 1])},
}

_NARROWED: Calls = {
    "sound": _SOUND,
    "sound, of tokens": {"kept": torch.ones(2, 3).bool(), "of_rows": False},
    "a mask of rows beside decisions of rows": {"mask": torch.ones(2).bool()},
    "kept of one row": {"kept": torch.ones(1).bool()},
    "kept of tokens where rows are meant": {"kept": torch.ones(2, 3).bool()},
    "kept of numbers": {"kept": torch.ones(2)},
    "of_rows a number": {"of_rows": 1},
}

_TURN_OF: Calls = {
    "sound": _SOUND,
    "mask of rows": {"mask": torch.ones(3).bool()},
    "mask of numbers": {"mask": torch.ones(1, 3)},
}

#: What the path hands on, of two rows of three tokens.
READY: Mapping[str, Any] = {
    **{n: torch.ones(2).bool() for n in ("live", "kept")},
    "mask": torch.ones(2, 3).bool(),
    "group": torch.arange(2),
    "reward": torch.ones(2),
    "advantage": torch.ones(2),
    "outcome": True,
}

_OF_READY: Calls = {"sound": _SOUND, "ready of nothing": {"ready": None}, "ready of rows": {"ready": torch.ones(2)}}

#: Function of what the path hands on -> what else it is called with.
OF_READY: Mapping[str, tuple[Mapping[str, Any], Calls]] = {
    "ready.prompts_apart": (
        {"prompts": 1, "generator": None},
        {
            **_OF_READY,
            "no prompts": {"prompts": 0},
            "prompts between two": {"prompts": 1.5},
            "generator 3": {"generator": 3},
        },
    ),
    "ready.trusted": (
        {"logprob": torch.zeros(2, 3), "old_logprob": torch.zeros(2, 3), "threshold": 0.1, "denominator": 2.0},
        {**_OF_READY, "threshold below 0": {"threshold": -0.1}, "denominator 0": {"denominator": 0.0}},
    ),
}

_TAKEN: Calls = {
    "sound": _SOUND,
    "sound, no rows": {"rows": torch.ones(0).long()},
    "rows of numbers": {"rows": torch.ones(1)},
    "rows in two axes": {"rows": torch.ones(1, 1).long()},
    "rows below 0": {"rows": torch.tensor([0, -1])},
    "rows beyond the last": {"rows": torch.tensor([0, 2])},
}

_APART, _ONE = torch.tensor([1, 2]), torch.tensor([1, 1])

ENDS: Calls = {
    "sound": {"trajectory": _APART, "last": torch.tensor([True, True])},
    "sound, of rows": _SOUND,
    "a step before the last": {"trajectory": _ONE, "last": torch.tensor([False, True])},
    "ends of nothing": {"last": torch.tensor([True, True])},
    "steps without an end": {"trajectory": _ONE},
}

#: Columns of two rows of three tokens.
_ROWS, _TOKENS = torch.ones(2), torch.ones(2, 3)

_ROLLOUT: Mapping[str, torch.Tensor] = {
    **dict.fromkeys(("reward", "reward_baseline"), _ROWS),
    **dict.fromkeys(("group", "trajectory"), torch.arange(2)),
    **dict.fromkeys(("scored", "last"), _ROWS.bool()),
    **dict.fromkeys(("token_reward", "old_logprob", "rollout_logprob", "ref_logprob", "pi_squared", "value"), _TOKENS),
    "mask": _TOKENS.bool(),
    "version": _TOKENS.long(),
    "reward_parts": torch.ones(2, 2),
}

_ROLLOUTS: Calls = {
    "sound": _SOUND,
    "sound, what must be": {n: None for n in _ROLLOUT if n not in {"reward", "group", "mask"}},
    "steps without an end": {"last": None},
    "ends of nothing": {"trajectory": None},
    **{f"{n} of another kind": {n: c.float() if c.dtype != torch.float32 else c.long()} for n, c in _ROLLOUT.items()},
    **{f"{n} of a row more": {n: torch.cat([c, c[:1]])} for n, c in _ROLLOUT.items()},
    **{f"{n} of an axis more": {n: c.unsqueeze(1)} for n, c in _ROLLOUT.items()},
}

_CHOSEN: Calls = {
    "sound": _SOUND,
    "sound, a KL and its price": {"kl": abs, "kl_coefficient": 0.1},
    "sound, a KL for the log": {"kl": abs},
    "sound, a weight and its bound": {"weight": abs, "bounds": (abs,)},
    "a rejection alone": {"rejections": abs},
    "a bound alone": {"weight": abs, "bounds": abs},
    "a list of rejections": {"rejections": [abs]},
    "the price of no KL": {"kl_coefficient": 0.1},
    "a price below 0": {"kl": abs, "kl_coefficient": -0.1},
    "bounds of no weight": {"bounds": (abs,)},
}

#: Versions of one row, and how they may be compared.
_VERSIONS: Mapping[str, Any] = {"version": torch.tensor([[0, 0]]), "mask": torch.ones(1, 2).bool(), "current": 0}

_BEHIND: Calls = {
    "sound": _SOUND,
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
    "rollout.Rollout": (_ROLLOUT, _ROLLOUTS),
    "path.Choices": ({"estimator": abs}, _CHOSEN),
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
        {"sound": _SOUND, "fewer than no tokens": {"tokens": torch.tensor([2, -1])}},
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
    "segments.padded": (
        {"values": torch.ones(3), "length": torch.tensor([2, 1]), "width": 2, "fill": 0.0},
        _PADDED,
    ),
    "segments.packed": ({"values": torch.ones(2, 3), "length": torch.tensor([2, 1])}, _PACKED),
    "segments.narrowed": (
        {"mask": torch.ones(2, 3).bool(), "kept": torch.tensor([True, False]), "of_rows": True},
        _NARROWED,
    ),
    "segments.rows_taken": ({"mask": torch.ones(2, 3).bool(), "rows": torch.tensor([1])}, _TAKEN),
    "segments.turns": ({"mask": torch.ones(1, 3).bool()}, _TURN_OF),
    "segments.Segments": ({"mask": torch.ones(3).bool(), "length": torch.tensor([2, 1])}, _SEGMENTS),
    "staleness.staleness": (_VERSIONS, _BEHIND),
    "staleness.fresh_rows": ({**_VERSIONS, "most": 0.0}, {**_BEHIND, "fewer than no updates behind": {"most": -1.0}}),
    "reward.suppressed": (
        {"reward": torch.ones(2), "live": torch.ones(2).bool(), "scored": torch.tensor([True, False])},
        {
            "sound": _SOUND,
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
        {"sound": _SOUND, "a length below 0": {"length": torch.tensor([9, -1])}},
    ),
    "advantage.maxrl.advantages": (
        {"reward": torch.tensor([0.0, 1.0]), "group": torch.zeros(2).long(), "live": torch.ones(2).bool()},
        {
            "sound": _SOUND,
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
            "sound": _SOUND,
            "a weight too few": {"weight": torch.ones(1)},
            "a weight too many": {"weight": torch.ones(3)},
        },
    ),
}
