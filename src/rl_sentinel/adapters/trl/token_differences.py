"""Rows whose tokens or mask differ from the chat template, as outputs of a boundary."""

from collections.abc import Sequence
from typing import Any

from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use

#: One number for each row.
ROWS = PerRow("list")


def count_differences(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The number of places at which two sequences differ; a place that only one of them has counts too."""
    return float(sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected)))


def token_outputs(result: Use, count: str = "tokens") -> dict[str, Output]:
    """How many tokens each row of a result has, under the name ``count``, and how many of them are off the template."""
    return {
        count: Output("B", "tokens", at=result["count"], form=ROWS),
        "tokens unlike the template": Output("B", "tokens", "tokens_off_template", at=result["tokens"], form=ROWS),
    }


def mask_output(result: Use) -> dict[str, Output]:
    """The output ``masks`` of a result: at how many tokens of a row the mask is not that of the replies."""
    return {"mask unlike the replies": Output("B", "tokens", "mask_off_replies", at=result["masks"], form=ROWS)}
