"""What the library's own functions cost as responses, positions and groups grow: ``python -m benchmarks.growth``."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.ours import PARTS
from benchmarks.tensors import Inputs
from benchmarks.timing import in_turn

#: Rows and width, each axis doubled twice while the other stands still; the share that is trained.
SIZES = ((256, 1024), (512, 1024), (1024, 1024), (2048, 1024), (512, 2048), (512, 4096), (512, 8192))
FILL = 0.5

#: Rows of one number each, and responses per prompt.
ROWS, PER_PROMPT = 8192, (1, 8, 64, 512, 8192)


def of_tokens() -> Iterator[dict[str, Any]]:
    """Milliseconds of each part at each size, in a process that has held the largest: memory is kept from then on."""
    widest = Inputs(*max(SIZES, key=lambda size: size[0] * size[1]), FILL)
    for part, (ours, _) in PARTS.items():
        if not part.startswith("log-probs"):
            ours(widest)
    for rows, width in SIZES:
        inputs = Inputs(rows, width, FILL)
        for part, (ours, _) in PARTS.items():
            if not part.startswith("log-probs"):
                yield {"part": part, "size": f"{rows} x {width}", "ours": in_turn([partial(ours, inputs)])[0]}


def of_groups() -> Iterator[dict[str, Any]]:
    """Milliseconds of the estimators of groups, at one number of rows and from many groups to one."""
    inputs = Inputs(ROWS, 16, FILL)
    for size in PER_PROMPT:
        object.__setattr__(inputs, "group", torch.arange(ROWS) // size)
        for part in ("GRPO, rewards [B]", "GRPO", "RLOO", "Pass@k", "REINFORCE++ baseline"):
            ours: Callable[..., Any] = PARTS[part][0]
            yield {"part": part, "size": f"{ROWS} / {ROWS // size}", "ours": in_turn([partial(ours, inputs)])[0]}


def main() -> None:
    """Print JSON lines for the parent."""
    torch.set_num_threads(1)
    for table, rows in (("tokens", of_tokens()), ("groups", of_groups())):
        for row in rows:
            print(json.dumps({"table": table} | row), flush=True)  # noqa: T201 - read by the parent


if __name__ == "__main__":
    main()
