"""How functions of storage are called: soundly, and with columns that exclude each other."""

from collections.abc import Mapping
from typing import Any

import torch

#: Way of calling -> what of a sound call is given instead.
Calls = Mapping[str, Mapping[str, Any]]

SOUND: Mapping[str, Any] = {}

_PADDED: Calls = {
    "sound": SOUND,
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
    "sound": SOUND,
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
    "sound": SOUND,
    "sound, a row of nothing": {"length": torch.tensor([3, 0])},
    "values in one axis": {"values": torch.ones(2)},
    "values of a row too few": {"values": torch.ones(1, 3)},
    "values of a row too many": {"values": torch.ones(3, 3)},
    "a length beyond the width": {"length": torch.tensor([4, 1])},
    "a length below 0": {"length": torch.tensor([-1, 1])},
}

_NARROWED: Calls = {
    "sound": SOUND,
    "sound, of tokens": {"kept": torch.ones(2, 3).bool(), "of_rows": False},
    "a mask of rows beside decisions of rows": {"mask": torch.ones(2).bool()},
    "kept of one row": {"kept": torch.ones(1).bool()},
    "kept of tokens where rows are meant": {"kept": torch.ones(2, 3).bool()},
    "kept of numbers": {"kept": torch.ones(2)},
    "of_rows a number": {"of_rows": 1},
}

_TURN_OF: Calls = {
    "sound": SOUND,
    "mask of rows": {"mask": torch.ones(3).bool()},
    "mask of numbers": {"mask": torch.ones(1, 3)},
}

_TAKEN: Calls = {
    "sound": SOUND,
    "sound, no rows": {"rows": torch.ones(0).long()},
    "rows of numbers": {"rows": torch.ones(1)},
    "rows in two axes": {"rows": torch.ones(1, 1).long()},
    "rows below 0": {"rows": torch.tensor([0, -1])},
    "rows beyond the last": {"rows": torch.tensor([0, 2])},
}

#: Function -> what it is called with, and how it may be called otherwise.
STORED: Mapping[str, tuple[Mapping[str, Any], Calls]] = {
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
}
