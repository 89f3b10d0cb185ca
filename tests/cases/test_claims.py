"""The table of claims is what laws and formulas read, and what the page says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rl_sentinel
from rl_sentinel.cases.claims import ADAPTED, ALGORITHMS, CITE, CLAIMS, stated
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.formulas.algorithms import ADVANTAGES
from rl_sentinel.formulas.kl_tokens import KL
from rl_sentinel.formulas.policy_losses import LOSSES
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.formulas.token_values import REWARDED
from rl_sentinel.formulas.value_losses import VALUE_LOSSES

PACKAGE = Path(rl_sentinel.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
TREES = [
    ast.parse(p.read_text(encoding="utf-8")) for f in ("laws", "cases", "formulas") for p in (PACKAGE / f).glob("*.py")
]


def _claim(node: ast.AST) -> str:
    """The name of the claim that an expression asks a boundary for, or an empty word."""
    asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "claim"
    if not asks or not isinstance(node, ast.Call):
        return ""
    name = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
    return str(name.value) if isinstance(name, ast.Constant) else ""


def _read() -> set[str]:
    nodes = [node for tree in TREES for node in ast.walk(tree)]
    prefixes = {
        str(node.args[0].value)
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "startswith"
        and isinstance(node.args[0], ast.Constant)
        and str(node.args[0].value).endswith(":")
    }
    return {_claim(node) for node in nodes} - {""} | prefixes


def _compared() -> Iterator[tuple[str, str]]:
    """Name and value of each comparison of a claim with a word."""
    for node in (n for tree in TREES for n in ast.walk(tree) if isinstance(n, ast.Compare)):
        words = [w.value for c in node.comparators for w in ast.walk(c) if isinstance(w, ast.Constant)]
        yield from ((_claim(node.left), str(word)) for word in words if _claim(node.left) and word)


def test_every_claim_that_is_read_is_known_and_no_other() -> None:
    """By the calls in laws and cases; so is every value that they compare with."""
    assert _read() == set(CLAIMS)
    compared = list(_compared())
    assert len(compared) > 15
    assert [pair for pair in compared if pair[1] not in CLAIMS[pair[0]].values] == []


def test_every_formula_is_an_algorithm() -> None:
    """Those that need settings of an adapter are no stage's."""
    stages = {name for names in ALGORITHMS.values() for name in names}
    assert stages == {*ADVANTAGES, *TEMPORAL, *LOSSES, *VALUE_LOSSES, "entropy", *KL, *REWARDED}
    assert set(CLAIMS["algorithm"].values) == stages | set(ADAPTED)


def test_page_names_every_claim_with_its_values_and_no_other() -> None:
    """What a user can state stands first."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {name: (tuple(re.findall("`([^`]+)`", values)), says.replace("\\|", "|")) for name, values, says in rows}
    known = {name: (about.values if name != "algorithm" else (), about.says) for name, about in CLAIMS.items()}
    assert told == known
    whole = PAGE.read_text(encoding="utf-8")
    first = whole.partition("Made by adapters only")[0]
    assert {n for n in CLAIMS if f"| `{n}` |" in first} == {n for n, about in CLAIMS.items() if about.stages}
    for stage, names in ALGORITHMS.items():
        assert f"| `{stage}` | {', '.join(f'`{n}`' for n in names)} |" in whole
    assert f"| adapters only | {', '.join(f'`{n}`' for n in ADAPTED)} |" in whole


def test_stated_claims_say_who_stated_them() -> None:
    """The value may hold an equals sign's neighbours: spaces, signs."""
    found = stated(["algorithm=pass@k", "deviation=n - 1"], "advantage")
    assert {key: (claim.value, claim.cite) for key, claim in found.items()} == {
        "algorithm": ("pass@k", CITE),
        "deviation": ("n - 1", CITE),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "algorithm=gpro",
            "--claim is 'algorithm=gpro', of which algorithm has no such value: the nearest is grpo",
        ),
        ("algorithm=ppo", "--claim is 'algorithm=ppo', of which algorithm has no such value: "),
        ("skope=group", "--claim is 'skope=group', of which 'skope' is no claim: the nearest is scope, of algorithm, "),
        ("scope", "--claim is 'scope', expected KEY=VALUE, as in scope=token (docs/claims.md)"),
        ("foo", "--claim is 'foo', expected KEY=VALUE, as in algorithm=grpo (docs/claims.md)"),
        ("foo=bar", "--claim is 'foo=bar', of which 'foo' is no claim: expected one of algorithm, scope, "),
        ("ratio=yes", "--claim is 'ratio=yes', of which no law reads ratio at stage advantage: expected one of "),
        ("weights=constant", "--claim is 'weights=constant', of which weights is claimed by adapters only: "),
    ],
)
def test_foreign_claim_is_one_line(text: str, words: str) -> None:
    """The nearest name is told."""
    with pytest.raises(SentinelError) as told:
        stated([text], "advantage")
    assert str(told.value).startswith(words)


def test_claim_with_two_values_is_refused() -> None:
    """Twice the same is one."""
    assert len(stated(["scope=group", "scope=group"], "advantage")) == 1
    with pytest.raises(SentinelError, match=r"^--claim scope is 'group' and 'batch', expected one of them$"):
        stated(["scope=group", "scope=batch"], "advantage")
