"""Outputs of functions that return rows as a dict with one list per column."""

from collections.abc import Mapping

import torch

from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Form

#: Column -> the key of its list, and the form of the list.
_LISTS: Mapping[str, tuple[str, Form]] = {
    "rollout_logprob": ("logprobs", Ragged()),
    "token": ("tokens", Ragged()),
    "mask": ("masks", Cast(Ragged(), torch.bool)),
    "version": ("versions", Ragged()),
    "reward": ("rewards", PerRow("list")),
}


def row_outputs(use: Use, *columns: str) -> dict[str, Output]:
    """One output per column, read from the dict of lists at ``use``; :data:`_LISTS` has the keys of the lists."""
    return {
        name: Output(COLUMNS[name]["axes"], COLUMNS[name]["unit"], name, at=use[key], form=form)
        for name, (key, form) in _LISTS.items()
        if name in columns
    }
