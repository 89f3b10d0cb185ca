"""Outputs per row: number of tokens, tokens that differ from the chat template, and wrong values of the mask."""

from collections.abc import Sequence
from typing import Any

from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use

#: One number for each row.
ROWS = PerRow("list")


def count_differences(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The number of positions at which two sequences differ; positions beyond the end of the shorter sequence count."""
    return float(sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected)))


def token_outputs(result: Use, count: str = "tokens") -> dict[str, Output]:
    """Two outputs per row: the number of tokens, named ``count``, and how many of them differ from the template."""
    return {
        count: Output("B", "tokens", at=result["count"], form=ROWS),
        "number of tokens that differ from the template": Output(
            "B", "tokens", "tokens_off_template", at=result["tokens"], form=ROWS
        ),
    }


def mask_output(result: Use) -> dict[str, Output]:
    """One output per row, from ``masks`` of the result: the number of mask values that do not match the replies."""
    return {
        "number of mask values that differ from the replies": Output(
            "B", "tokens", "mask_off_replies", at=result["masks"], form=ROWS
        )
    }
