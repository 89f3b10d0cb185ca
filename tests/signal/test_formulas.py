"""Every public function of ``signal`` equals its formula on random cases; numbers that no function may read are NaN."""

import ast
import importlib
from pathlib import Path

import pytest
import torch
from batch_formula_pairs import WHOLE
from draws import Draw, cases, together
from formula_pairs import APART

import rl_sentinel.signal
from rl_sentinel.signal import align


def _same(found: torch.Tensor, expected: object) -> bool:
    numbers = torch.as_tensor(expected, dtype=torch.float64)
    compared = ~numbers.isnan()
    close = torch.isclose(found.double(), numbers, rtol=1e-7, atol=1e-9)
    return found.shape == numbers.shape and bool(close[compared].all())


@pytest.fixture(scope="module")
def batch() -> Draw:
    """500 groups of one to six rows; long enough for sums in several blocks."""
    return together(width=40)


@pytest.fixture(scope="module")
def drawn() -> list[Draw]:
    return list(cases())


@pytest.mark.parametrize("name", APART)
def test_rows_and_groups(name: str, batch: Draw) -> None:
    pair = APART[name]
    expected = torch.as_tensor(pair.expected(batch), dtype=torch.float64)
    assert expected.isnan().float().mean() < 0.01
    assert _same(pair.call(batch), expected)


@pytest.mark.parametrize("name", WHOLE)
def test_batches(name: str, drawn: list[Draw]) -> None:
    """Variants of one function share the 500 batches."""
    pair = WHOLE[name]
    siblings = [n for n in WHOLE if n.partition(",")[0] == name.partition(",")[0]]
    own, compared = drawn[siblings.index(name) :: len(siblings)], 0
    for i, one in enumerate(own):
        found, expected = pair.call(one), torch.as_tensor(pair.expected(one), dtype=torch.float64)
        assert _same(found, expected), (i, found, expected)
        compared += not bool(expected.isnan().any())
    assert compared > len(own) * 0.6


@pytest.mark.parametrize("predicts_next", [False, True])
def test_response_aligned(predicts_next: bool) -> None:
    """Token t of a response is at ``prompt + t``; the logits that predict it are one position earlier."""
    length = torch.randint(0, 6, (500,), generator=torch.Generator().manual_seed(0))
    prompt = torch.randint(1, 7, (500,), generator=torch.Generator().manual_seed(1))
    values = torch.arange(500 * 12).double().view(500, 12)
    found = align.response_aligned(values, prompt_length=prompt, length=length, width=5, predicts_next=predicts_next)
    rows = zip(values.tolist(), (prompt - int(predicts_next)).tolist(), length.tolist(), strict=True)
    assert found.tolist() == [row[start : start + n] + [0.0] * (5 - n) for row, start, n in rows]


def public_functions() -> set[str]:
    """Every public function below ``signal``, by its path."""
    root = Path(rl_sentinel.signal.__path__[0])
    return {
        f"{'.'.join(path.relative_to(root).with_suffix('').parts)}.{node.name}"
        for path in root.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if path.stem not in {"requirements", "validation"} and path.parent.name != "kernels"
    }


def test_every_function_is_compared() -> None:
    losses = importlib.import_module("loss_formulas").LOSSES
    drawn = [n for m in ("sequences", "path") for n in importlib.import_module(f"test_formulas_of_{m}").COMPARED]
    known = {name.split(",")[0] for name in (*APART, *WHOLE, *drawn)} | {f"loss.{name}.loss" for name in losses}
    elsewhere = {"align.response_aligned", "steps.trajectories"}  # compared above, and in test_steps
    assert public_functions() - known == elsewhere
