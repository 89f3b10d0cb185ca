"""One peer beside us in one process: ``python -m benchmarks.child PEER`` prints JSON lines."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.ours import PARTS
from benchmarks.tensors import Inputs
from benchmarks.timing import copy_bandwidth, in_turn

#: Rows and width of the comparisons, and the share of a row that is trained.
SIZES = ((512, 1024), (512, 4096), (2048, 4096))
FILL = 0.5

#: Tokens and vocabulary of the comparisons that start from logits.
LOGITS = (1024, 32_768)


def compare(peer: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - a module of benchmarks.peers
    """A row for each part, form and size; ``same`` is whether both sides gave the same numbers."""
    bandwidth = copy_bandwidth()
    for part, forms in peer.PARTS.items():
        ours, per_token = PARTS[part]
        for arguments, size, units in _arguments(part):
            floor = units * per_token / bandwidth
            calls = [partial(f, *arguments) for f in (ours, *forms.values())]
            same = [_same(calls[0](), call()) for call in calls[1:]]
            mine, *others = in_turn(calls)
            for form, seconds, agrees in zip(forms, others, same, strict=True):
                told = {"peer": peer.RELEASE, "part": part, "form": form, "size": size, "same": agrees}
                yield told | {"ours": mine, "theirs": seconds, "floor": floor}


def _arguments(part: str) -> Iterator[tuple[tuple[Any, ...], str, int]]:
    if part.startswith("log-probs"):
        tokens, vocabulary = LOGITS
        draw = torch.Generator().manual_seed(0)
        logits = torch.randn(1, tokens, vocabulary, generator=draw)
        token = torch.randint(0, vocabulary, (1, tokens), generator=draw)
        yield (logits, token), f"{tokens} x {vocabulary}", tokens * vocabulary
        return
    for rows, width in SIZES:
        inputs = Inputs(rows, width, FILL)
        yield (inputs,), f"{rows} x {width}", int(inputs.mask.sum())


def _same(ours: Any, theirs: Any) -> bool:  # noqa: ANN401 - tensors, or tuples of them
    """Equal up to rounding, where both are not 0 because nothing is trained there; ``[B]`` is spread over rows."""
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    return all(_close(a, b) for a, b in pairs)


def _close(a: Tensor, b: Tensor) -> bool:
    if a.dim() == 1 and b.dim() == 2:
        b = b.gather(1, b.abs().argmax(dim=1, keepdim=True)).squeeze(1)
    if torch.bool in (a.dtype, b.dtype):
        return bool((a.bool() == b.bool()).all())
    return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-5 * (b.abs().max().item() + 1e-12)))


def main(call: Callable[[str], Any] = importlib.import_module) -> None:
    """Compare with the peer that is named."""
    torch.set_num_threads(1)
    peer = call(f"benchmarks.peers.{sys.argv[1]}")
    peer.load()
    for row in compare(peer):
        print(json.dumps(row), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main()
