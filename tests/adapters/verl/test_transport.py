"""verl's transport of a batch, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, rewritten
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, transport
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PROTOCOL = """
    import numpy as np
    import torch

    class DataProto:
        def __init__(self, batch, labels, meta_info):
            self.batch, self.non_tensor_batch, self.meta_info = batch, labels, meta_info

        @classmethod
        def from_dict(cls, tensors, non_tensors=None, meta_info=None):
            return cls(tensors, non_tensors or {}, meta_info or {})

        def __len__(self):
            return len(self.batch["row"])

        def __getitem__(self, rows):
            rows = rows if isinstance(rows, slice) else list(rows)
            labels = {name: column[rows] for name, column in self.non_tensor_batch.items()}
            return DataProto({name: column[rows] for name, column in self.batch.items()}, labels, dict(self.meta_info))

        def chunk(self, chunks):
            size = len(self) // chunks
            return [self[start : start + size] for start in range(0, len(self), size)]

        @staticmethod
        def concat(parts):
            labels = {n: np.concatenate([p.non_tensor_batch[n] for p in LABELED]) for n in parts[0].non_tensor_batch}
            tensors = {n: torch.cat([p.batch[n] for p in parts]) for n in parts[0].batch}
            metrics = [one for part in MEASURED for one in part.meta_info.get("metrics", [])]
            return DataProto(tensors, labels, {"metrics": metrics} if metrics else {})

        def repeat(self, repeat_times, interleave):
            rows = torch.arange(len(self))
            order = rows.repeat_interleave(repeat_times) if interleave else rows.repeat(repeat_times)
            made = self[order.tolist()]
            made.non_tensor_batch = {n: np.repeat(c, repeat_times) for n, c in self.non_tensor_batch.items()} if (
                interleave or STACKED_LIKE_INTERLEAVED
            ) else made.non_tensor_batch
            return made

        def reorder(self, indices):
            order = indices.tolist()
            self.batch = {name: column[order] for name, column in self.batch.items()}
            self.non_tensor_batch = {name: column[OTHERS] for name, column in self.non_tensor_batch.items()}

        def select_idxs(self, idxs):
            return self[SELECTED]

        def __getstate__(self):
            return STATE, self.non_tensor_batch, self.meta_info

        def __setstate__(self, state):
            self.batch, self.non_tensor_batch, self.meta_info = state

        def make_iterator(self, mini_batch_size, epochs, seed):
            for _ in range(epochs):
                for start in range(0, len(self), mini_batch_size):
                    yield self[FIRST : FIRST + mini_batch_size]

    def pad_dataproto_to_divisor(data, divisor):
        missing = -len(data) % divisor
        return DataProto.concat([data, *[data[:1]] * missing]) if missing else data, missing

    def unpad_dataproto(data, missing):
        return data[: len(data) - missing]
"""

SOUND = {
    "LABELED": "parts",
    "MEASURED": "parts",
    "STACKED_LIKE_INTERLEAVED": "False",
    "FIRST": "start",
    "OTHERS": "order",
    "SELECTED": "idxs",
    "STATE": "self.batch",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(PROTOCOL, SOUND | broken)
    tree = files()
    tree["verl/protocol.py"] = source
    target = loads(FRAMEWORK, tree)
    made = [one for one in transport.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.path.rpartition(".")[2]: one for one in made}


def test_sound(loads: Loads) -> None:
    """Each row is where it was, with its columns, and is used as often as it should be."""
    target, found = _bound(loads)
    operations = ["__getstate__", "concat", "make_iterator", "reorder", "repeat", "select_idxs", "unpad_dataproto"]
    assert sorted(found) == operations
    assert answering({(name, s): one for name, one in found.items() for s in one.settings}, target) == []
    for boundary in found.values():
        for setting in boundary.settings:
            for law in (PLC004, DAT002):
                check_verdict(law, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("name", "setting", "broken"),
    [
        ("unpad_dataproto", "two ranks", {"len(data) - missing": "len(data)"}),
        ("concat", "default", {"MEASURED": "parts[:1]"}),
        ("repeat", "stacked", {"STACKED_LIKE_INTERLEAVED": "True"}),
        ("make_iterator", "default", {"FIRST": "0"}),
        ("reorder", "default", {"OTHERS": "range(len(order))"}),
        ("select_idxs", "default", {"SELECTED": "sorted(idxs)"}),
        (
            "__getstate__",
            "default",
            {"STATE": "{k: v.half() if v.is_floating_point() else v for k, v in self.batch.items()}"},
        ),
    ],
)
def test_found(loads: Loads, name: str, setting: str, broken: dict[str, str]) -> None:
    """Padding that stays, measurements of one rank alone, labels in another order, one mini-batch again and again.

    Labels that stay where they were, rows in their old order, numbers in another type.
    """
    target, found = _bound(loads, **broken)
    laws = (PLC004, DAT002)
    assert any(judged_at(law, found[name], setting, target).found is not None for law in laws)
