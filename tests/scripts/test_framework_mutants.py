"""Mutants of frameworks: what each operator changes, which functions are drawn, and what counts as found."""

import ast
from pathlib import Path

import pytest
from mutants.frameworks import page
from mutants.frameworks.draw import Reach, drawn, function_of, path_mutants
from mutants.frameworks.operators import PATH_OPERATORS
from mutants.frameworks.planting import changed, difference, planted
from mutants.frameworks.trial import Result, Verdict, new_finding, newly_loud
from mutants.sites import Mutant, mutants

SOURCE = '''
"""A page of losses."""

import torch


def loss(log_prob, old_log_prob, advantages, mask, batch_num_tokens=None):
    """Minus the mean."""
    if batch_num_tokens is None:
        batch_num_tokens = mask.sum()
    ratio = torch.exp(log_prob - old_log_prob.detach())  # the policy's own
    total = (-advantages * ratio * mask).sum() / batch_num_tokens
    return total, {"ratio": ratio.mean(dim=-1), "loss": total}


async def read(rewards, width):
    return (rewards * width)[:, 1:]


def plumbing(path, width):
    return -width
'''

ENTERED = {
    "page.loss": frozenset({("page.py", "loss"), ("page.py", "plumbing")}),
    "page.read": frozenset({("page.py", "read")}),
    "page.all": frozenset({("page.py", "read"), ("page.py", "loss"), ("page.py", "plumbing")}),
}


def _changes(expression: str, operator: str) -> list[str]:
    """What an operator makes of an expression or a statement, at any place in it."""
    source = f"def f(x):\n    {expression}\n"
    return [
        ast.unparse(ast.parse(changed(source, m)).body[0]).splitlines()[1].strip()
        for m in mutants("f.py", source, PATH_OPERATORS)
        if m.operator == operator
    ]


#: Operator -> a line of a function -> what it may become.
CHANGES = {
    "mask_dropped": {
        "y = x * loss_mask.float()": ["y = x"],
        "y = masked_mean(x, mask)": ["y = masked_mean(x, torch.ones_like(mask))"],
        "y = masked_sum(x, mask=m.mask)": ["y = masked_sum(x, mask=torch.ones_like(m.mask))"],
        "y = x[mask] + where(mask, x, 0)": ["y = x + where(mask, x, 0)", "y = x[mask] + x"],
        "x *= batch['mask']": ["pass"],
    },
    "mean_over_all": {
        "y = (x * mask).sum(1) / (mask.sum(1) + 1)": [
            "y = x.mean()",
            "y = (x * mask).sum() / (mask.sum(1) + 1)",
            "y = (x * mask).sum(1) / (mask.sum() + 1)",
        ],
        "y = x.std(dim=-1, keepdim=True)": ["y = x.std()"],
    },
    "shift_by_one": {
        "y = x[:, 1:]": ["y = x[:, :-1]"],
        "y = x[:, -n - 1:-1]": ["y = x[:, -n - 1 + 1:]", "y = x[:, -n:-1]"],
        "y = x[:, -n:]": ["y = x[:, -n - 1:-1]"],
        "y = torch.roll(x, -1)": ["y = x"],
        "y = log_prob - old_log_prob": ["y = log_prob - old_log_prob.roll(1, -1)"],
    },
    "sign": {"y = -x - z": ["y = z - -x", "y = x - z"], "x -= y": ["x += y"]},
    "detach": {
        "y = torch.exp(x.detach())": ["y = torch.exp(x.detach()).detach()", "y = torch.exp(x)"],
        "y = log_prob - old_log_prob": ["y = log_prob.detach() - old_log_prob"],
    },
    "denominator": {
        "y = x / num_tokens * dp_size": ["y = x / num_tokens", "y = x * dp_size"],
        "y = x.sum() / mask.sum().clamp(1)": ["y = x.sum() / torch.ones_like(mask).sum().clamp(1)"],
    },
    "wrong_key": {"y = {'a': 1, 'b': 2, **x, 'c': 3}": ["y = {'a': 2, 'b': 1, **x, 'c': 3}"]},
}


@pytest.mark.parametrize(
    ("operator", "before", "after"), [(o, b, a) for o, lines in CHANGES.items() for b, a in lines.items()]
)
def test_what_an_operator_changes(operator: str, before: str, after: list[str]) -> None:
    """One fault at a time, at each place."""
    assert _changes(before, operator) == after


def test_the_count_of_the_micro_batch() -> None:
    """A count that was handed in is counted again."""
    (mutant,) = (m for m in mutants("page.py", SOURCE, PATH_OPERATORS) if m.before.startswith("if batch_num_tokens"))
    assert mutant.operator == "denominator"
    assert difference(SOURCE, mutant) == "-    if batch_num_tokens is None:\n+    if True:"


def test_only_the_changed_text_changes() -> None:
    """Comments, layout and the other lines stay."""
    for mutant in mutants("page.py", SOURCE, PATH_OPERATORS):
        text = changed(SOURCE, mutant)
        ast.parse(text)
        assert text.startswith('\n"""A page of losses."""')
        assert "# the policy's own" in text
        assert difference(SOURCE, mutant).count("\n") < 6
    source = "def f(x, mask):\n    return 'é', masked_mean(x, mask=mask)  # why\n"
    (mutant,) = (m for m in mutants("f.py", source, PATH_OPERATORS) if m.operator == "mask_dropped")
    text = "def f(x, mask):\n    return 'é', (masked_mean(x, mask=torch.ones_like(mask)))  # why\n\nimport torch\n"
    assert changed(source, mutant) == text


def _tree(tmp_path: Path) -> Path:
    package = tmp_path / "page"
    package.mkdir()
    (package / "loss.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "beside.txt").write_text("data", encoding="utf-8")
    return tmp_path


def test_a_copy_holds_the_mutant(tmp_path: Path) -> None:
    """The copy has the change, the tree does not, and what lies beside the package is there."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    root = _tree(tmp_path / "tree")
    mutant = next(iter(path_mutants(root, {("page/loss.py", "loss")})))
    copy = planted(root, "page", mutant, tmp_path / "scratch")
    assert (copy / "page/loss.py").read_text(encoding="utf-8") == changed(SOURCE, mutant) != SOURCE
    assert (root / "page/loss.py").read_text(encoding="utf-8") == SOURCE
    assert (copy / "beside.txt").read_text(encoding="utf-8") == "data"


def test_functions_of_the_path_are_drawn(tmp_path: Path) -> None:
    """A function is drawn once, whatever its length; one that no boundary enters, or off the path, is not."""
    root = _tree(tmp_path)
    functions = {("page/loss.py", name) for name in ("loss", "read", "plumbing")}
    every = list(path_mutants(root, functions))
    assert {m.function for m in every} == {"loss", "read"}
    assert {m.function for m in path_mutants(root, {("page/loss.py", "read")})} == {"read"}
    assert sorted(m.function for m in drawn(every, 20, 1)) == ["loss", "read"]
    assert len(drawn(every, 1, 1)) == 1
    assert drawn(every, 20, 1) == drawn(every[::-1], 20, 1)
    assert len({m.name for seed in range(9) for m in drawn(every, 20, seed)}) > 4


def test_boundaries_that_enter_the_least_come_first() -> None:
    """There a fault shows best."""
    mutant = Mutant("page.py", "loss", 1, "sign", "a", "b", 1, ast.parse(""))
    assert Reach(ENTERED).boundaries(mutant) == ["page.loss", "page.all"]
    assert function_of("page.py:7:Loss.step.<locals>.inner") == ("page.py", "Loss.step")


PAIR = ("SGN001", "page.loss", "default")


@pytest.mark.parametrize(
    ("before", "after", "finding", "loud"),
    [
        ("holds", "broken", True, False),
        ("broken", "broken", False, False),
        ("hazard", "broken", True, False),
        ("holds", "hazard", False, False),
        ("holds", "errored", False, True),
        ("errored", "errored", False, False),
        ("broken", "not-applicable", False, True),
        ("not-applicable", "not-applicable", False, False),
        ("broken", "holds", False, False),
    ],
)
def test_what_counts(before: str, after: str, *, finding: bool, loud: bool) -> None:
    """Found is what was not broken before; loud is what shows without a law."""
    was, now = {PAIR: Verdict(before, "")}, {PAIR: Verdict(after, "why")}
    expected = Result("found", "SGN001", "page.loss [default]", "why")
    assert new_finding(was, now) == (expected if finding else None)
    assert bool(newly_loud(was, now)) == loud


def test_boundary_that_is_gone() -> None:
    """A boundary that the mutant's tree no longer has did not judge it."""
    assert newly_loud({PAIR: Verdict("holds", "")}, {}) == "page.loss is no longer bound"


def test_the_page_keeps_other_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target's row and section are replaced, those of other frameworks stay."""
    root, table = _tree(tmp_path), tmp_path / "equivalent.toml"
    found, alive, same, loud = list(path_mutants(root, {("page/loss.py", "loss")}))[:4]
    table.write_text(f"[[verl]]\nwhy = 'it is so'\nmutants = [{same.name!r}]\n", encoding="utf-8")
    monkeypatch.setattr(page, "EQUIVALENT", table)
    law = Result("found", "SGN001", "page.loss [default]", "the sign is wrong")
    tried = [(found, law), (alive, Result("survived")), (same, Result("survived")), (loud, Result("loud", detail="no"))]
    draw = page.Draw("verl==0.9.1", 7, 30, tried, root)
    assert page.rate(draw) == 0.5
    assert page.mistaken(draw) == []
    assert page.mistaken(page.Draw("verl==0.9.1", 7, 30, [(same, law)], root)) == [same.name]
    figures = "4 of 30 possible mutants were tried (drawn with seed 7): 1 are loud, 1 are equivalent."
    assert figures in page.summary(draw)
    other = page.page(page.Draw("slime@/home/slime#0123456789abc", 9, 30, [(found, law)], root))
    text = page.page(draw, other)
    assert "| slime 012345678 | 1 | 0 | 0 | 0 | 100% | 100% |" in text
    assert "| verl 0.9.1 | 1 | 1 | 1 | 1 | 50% | 33% |" in text
    assert text.count("\n## slime 012345678\n") == text.count("\n## verl 0.9.1\n") == 1
    assert "SGN001 at `page.loss [default]`: the sign is wrong" in text
    assert "it is so" in text
    assert page.page(draw, text) == text
    every = list(path_mutants(root, {("page/loss.py", "loss"), ("page/loss.py", "read")}))
    assert {m.name for m in page.listed(text, "verl 0.9.1", every, root)} == {m.name for m, _ in tried}
    assert [m.name for m in page.listed(text, "slime 012345678", every, root)] == [found.name]
    better = page.Draw("verl==0.9.1", 7, 30, [(found, law)], root)
    assert "| verl 0.9.1 | 1 | 0 | 0 | 0 | 100% | 33% |" in page.page(better, text, again=True)
    assert "| verl 0.9.1 | 1 | 0 | 0 | 0 | 100% | 100% |" in page.page(better, text)  # a new draw
