"""The usual fields of a row of a rollout, and outputs of functions that return rows as a dict of lists."""

from collections.abc import Mapping

import torch

from rl_sentinel.adapters.kit.forms import Cast, PerRow, Ragged
from rl_sentinel.adapters.kit.row_codecs import Cell, RowPrompt, RowTokens
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Codec, Form

#: Column -> the key of its list, and the form of the list.
_LISTS: Mapping[str, tuple[str, Form]] = {
    "rollout_logprob": ("logprobs", Ragged()),
    "token": ("tokens", Ragged()),
    "mask": ("masks", Cast(Ragged(), torch.bool)),
    "version": ("versions", Ragged()),
    "reward": ("rewards", PerRow("list")),
}

#: The usual name of a field of a row -> its codec.
_FIELDS: Mapping[str, Codec] = {
    "group": Cell("group", "int"),
    "trajectory": Cell("trajectory", "int"),
    "last_step": Cell("last_step", "bool"),
    "prompt": RowPrompt(),
    "tokens": RowTokens("token", "int"),
    "mask": RowTokens("mask", "int"),
    "logprobs": RowTokens("rollout_logprob"),
    "versions": RowTokens("version", "int"),
    "reward": Cell("reward"),
}


def row_fields(*names: str) -> dict[str, Codec]:
    """The codecs of these fields of a row."""
    return {name: _FIELDS[name] for name in names}


def row_outputs(use: Use, *columns: str) -> dict[str, Output]:
    """One output per column, read from the dict of lists at ``use``; :data:`_LISTS` has the keys of the lists."""
    return {
        name: Output(COLUMNS[name]["axes"], COLUMNS[name]["unit"], name, at=use[key], form=form)
        for name, (key, form) in _LISTS.items()
        if name in columns
    }
