"""What kind of value the code of a function expects of a parameter."""

from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.parameter_uses import plain_uses


def _configured(rewards: Tensor, cfg: Any, color: str, size: int = 2) -> Any:
    n = cfg.rollout.n
    grouped = rewards.view(-1, n)
    if cfg.get("how") in ("mean", "sum") or color.lower() == "red":
        return grouped.sum(1)[: cfg.kept]
    if cfg.flags["use_std"] and not cfg.raw and cfg.limit > 0:
        return {"a": grouped.mean(1), "b": grouped.mean(0)}[cfg.which]
    match cfg.mode:
        case "plain":
            return grouped.flatten()
    return grouped * cfg.weight + rewards[0] * size


def test_the_code_tells_texts_flags_and_numbers() -> None:
    """By comparison, truth, size or annotation; a number that is only multiplied may be a column."""
    assert plain_uses(_configured) == {
        "color": ("text", ()),
        "size": ("number", ()),
        "cfg.rollout.n": ("number", ()),
        "cfg.how": ("text", ("mean", "sum")),
        "cfg.kept": ("number", ()),
        "cfg.flags.use_std": ("flag", ()),
        "cfg.raw": ("flag", ()),
        "cfg.limit": ("number", ()),
        "cfg.which": ("text", ("a", "b")),
        "cfg.mode": ("text", ("plain",)),
    }


def test_columns_are_no_plain_values() -> None:
    """Comparisons of tensors, and tests of what is made of them, say nothing."""

    def loss(logprob: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        kept = (targets >= 0) & (targets != -100)
        if mask is not None and bool(mask.any()):
            kept = kept & mask
        return -torch.where(kept, logprob, 0.0).sum()

    assert plain_uses(loss) == {}


def test_code_without_source_says_nothing() -> None:
    """As of a builtin."""
    assert plain_uses(eval("lambda kind: kind == 'raw'")) == {}  # noqa: S307 - a function without a file


def test_a_list_of_sizes_is_no_number() -> None:
    def mine(rewards: Any, sizes: list[int], size: int) -> Any:
        return rewards.split(sizes), rewards.split(size)

    assert plain_uses(mine) == {"size": ("number", ())}
