"""A table of a few responses of a training step, for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

#: The most characters of a prompt and of a completion that are shown.
PROMPT, COMPLETION = 40, 60


def completions_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """A table with the end of each prompt, the start of its completion, its rewards and its advantage.

    Example:
        >>> from rl_sentinel.report.completions import completions_table
        >>> line = {"prompt": "1+2=", "completion": "3", "rewards": {}, "reward": 1.0, "advantage": 0.5}
        >>> completions_table([line]).row_count
        1
    """
    table = Table(box=None, pad_edge=False)
    for name in ("prompt", "completion", "rewards", "advantage"):
        table.add_column(name, justify="right" if name == "advantage" else "left", overflow="fold")
    for line in lines:
        rewards = {} if line.get("failure") else line["rewards"] or {"reward": line["reward"]}
        listed = " ".join(f"{name} {value:.3g}" for name, value in rewards.items())
        shown = escape(listed or "failed")
        advantage = "-" if line["advantage"] is None else f"{line['advantage']:+.3f}"
        prompt = _cut(line["prompt"], -PROMPT)
        table.add_row(escape(prompt), escape(_cut(line["completion"], COMPLETION)), shown, advantage)
    return table


def _cut(text: str, size: int) -> str:
    """The first characters of a text in one line; with a negative size, the last characters."""
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    if len(text) <= abs(size):
        return text
    return f"{text[:size]}..." if size > 0 else f"...{text[size:]}"
