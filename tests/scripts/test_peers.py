"""Published tests of a framework, against ours: what is put where, what counts, and what a table must say."""

import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from peers import page, places, review
from peers.page import NAMES, outcomes
from peers.places import files_with, place
from peers.review import Entry, Review, kind, wrong
from peers.shims import skyrl, trl, verl

from rl_sentinel.core.errors import SentinelError

pytestmark = pytest.mark.slow  # two test runs of a framework, each in a process of its own

FILE = "tests/test_means.py"

PACKAGE = """
import absent_engine

def mean(values, mask):
    return (values * mask).sum() / mask.sum()

def twice(values):
    return values * 2

REGISTRY = {"mean": mean}

class Trainer:
    @staticmethod
    def whole(values, mask):
        return mean(values, mask)
"""

TESTS = {
    "test_means.py": """
        import pytest
        import torch
        from toy.algorithms import REGISTRY, Trainer, mean, twice

        ONE, MASK = torch.tensor([[1.0, 3.0, 5.0]]), torch.tensor([[1.0, 1.0, 0.0]])

        def test_mean():
            assert mean(ONE, MASK) == 2.0

        def test_registered():
            assert REGISTRY["mean"] is mean and REGISTRY["mean"](ONE, MASK) == 2.0

        def test_called_within():
            assert Trainer.whole(ONE, MASK) == 2.0

        @pytest.mark.parametrize("weight", [0.5, 1.0])
        def test_fractions(weight):
            assert mean(ONE, torch.tensor([[1.0, 1.0, weight]])) == (4.0 + 5.0 * weight) / (2.0 + weight)

        def test_twice():
            assert twice(2) == 4

        @pytest.mark.skip(reason="needs a device")
        def test_device():
            mean(ONE, MASK)

        def test_for_hours():
            raise RuntimeError(mean)
    """,
    "test_broken.py": """
        from toy.algorithms import mean, gone
    """,
    "test_elsewhere.py": """
        def test_nothing():
            pass
    """,
}

SHIM = """
from peers.peer import Peer
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.signal.minibatches import aggregation
from rl_sentinel.signal.reduce import aggregate

def _mean(values, mask):
    where = mask.bool()
    return aggregate(values, mask=where, aggregation=aggregation("token-mean", mask=where))

PEER = Peer(
    framework=Framework(name="toy", package="toy", boundaries=lambda _target: iter(())),
    ours={"toy.algorithms.mean": _mean},
)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of the tests of a framework of a few lines, with ours and with its own."""
    root, shims = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("shims")
    (root / "toy").mkdir()
    (root / "toy" / "__init__.py").touch()
    (root / "toy" / "algorithms.py").write_text(PACKAGE, encoding="utf-8")
    (root / "tests").mkdir()
    for name, text in TESTS.items():
        (root / "tests" / name).write_text(textwrap.dedent(text), encoding="utf-8")
    (shims / "toy_shim.py").write_text(SHIM, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(shims)
        return {
            whose: outcomes("toy_shim", root, whose, ["tests/test_means.py::test_for*"]) for whose in ("ours", "own")
        }


def test_what_becomes_of_each_test(seen: dict[str, dict[str, Any]]) -> None:
    """Ours stand in modules, registries and classes; what enters nothing of ours is outside; nothing is left out."""
    assert {test.rpartition("/")[2]: (kind(told), told["outcome"]) for test, told in seen["ours"].items()} == {
        "test_broken.py": ("outside", "failed"),
        "test_means.py::test_mean": ("agrees", "passed"),
        "test_means.py::test_registered": ("agrees", "passed"),
        "test_means.py::test_called_within": ("agrees", "passed"),
        "test_means.py::test_fractions[0.5]": ("differs", "failed"),
        "test_means.py::test_fractions[1.0]": ("agrees", "passed"),
        "test_means.py::test_twice": ("outside", "passed"),
        "test_means.py::test_device": ("outside", "skipped"),
        "test_means.py::test_for_hours": ("outside", "unrun"),
    }
    assert seen["ours"]["tests/test_means.py::test_mean"]["entered"] == [
        "kernels.bits.any_true",
        "kernels.bits.zeroed",
        "kernels.modes.traced",
        "minibatches.aggregation",
        "reduce.Aggregation.shares",
        "reduce.aggregate",
        "reduce.live_rows",
        "reduce.row_sums",
        "reduce.selected",
        "requirements.require_kind",
        "validation.validate_record",
    ]


def test_its_own_functions_enter_nothing_of_ours(seen: dict[str, dict[str, Any]]) -> None:
    """The same tests, as the framework runs them."""
    assert {kind(told) for told in seen["own"].values()} == {"outside"}
    assert seen["own"]["tests/test_means.py::test_fractions[0.5]"]["outcome"] == "passed"


def _tables(
    *differs: str,
    outside: tuple[str, ...] = ("tests/test_b*", f"{FILE}::test_twice", f"{FILE}::test_device", f"{FILE}::*_hours"),
) -> Review:
    return Review([Entry(x, "why") for x in differs], [Entry(x, "why") for x in outside])


def test_a_table_that_says_it_all(seen: dict[str, dict[str, Any]]) -> None:
    """No line is left; brackets in a pattern are brackets."""
    assert wrong(seen["ours"], seen["own"], _tables(f"{FILE}::test_fractions[0.5]")) == []


def test_what_a_table_leaves_out(seen: dict[str, dict[str, Any]]) -> None:
    """A difference and a test outside each ask for a reason."""
    (difference,) = wrong(seen["ours"], seen["own"], _tables())
    assert difference.startswith(
        f"{FILE}::test_fractions[0.5] differs, expected agreement (passed with the framework's own): assert "
    )
    assert wrong(
        seen["ours"],
        seen["own"],
        _tables(f"{FILE}::test_fractions[0.5]", outside=("tests/test_b*", f"{FILE}::test_twice", f"{FILE}::*_hours")),
    ) == ["tests/test_means.py::test_device enters none of our functions (skipped), expected a reason in the table"]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (f"{FILE}::test_fractions[*", "a test that agrees"),
        (f"{FILE}::test_mean", "a test that agrees"),
        (f"{FILE}::test_gone", "no test"),
    ],
)
def test_stale_entries(seen: dict[str, dict[str, Any]], pattern: str, told: str) -> None:
    """What has come to agree, or is there no more."""
    lines = wrong(seen["ours"], seen["own"], _tables(f"{FILE}::test_fractions[0.5]", pattern))
    assert lines == [f"the entry {pattern!r} under differs is stale: it covers {told}"]


def test_entries_of_absent_files_are_not_stale(seen: dict[str, dict[str, Any]]) -> None:
    """A source distribution may leave a file out that a checkout has."""
    assert (
        wrong(seen["ours"], seen["own"], _tables(f"{FILE}::test_fractions[0.5]", "tests/test_other.py::test_x")) == []
    )


def test_files_are_found_by_words(tmp_path: Path) -> None:
    """Test files below tests, in order."""
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    for name, text in (("deep/test_b.py", "mean"), ("test_a.py", "a mean"), ("test_c.py", "median"), ("d.py", "mean")):
        (tmp_path / "tests" / name).write_text(text, encoding="utf-8")
    assert files_with(tmp_path, frozenset({"mean"})) == ["tests/deep/test_b.py", "tests/test_a.py"]


def test_places_that_are_none(tmp_path: Path) -> None:
    """Each in one line."""
    with pytest.raises(SentinelError, match=r"^checkout\[trl\] is '/nowhere', expected a folder with trl/ and tests/$"):
        place(trl.PEER, "/nowhere")
    (tmp_path / "trl").mkdir()
    with pytest.raises(SentinelError, match=r"holds no tests/, expected a whole checkout: name one"):
        place(trl.PEER, str(tmp_path))


@pytest.mark.parametrize("shim", [verl, trl, skyrl])
def test_tables_are_read(shim: ModuleType) -> None:
    """Each framework has one, with a reason for each entry."""
    name = shim.PEER.framework.name
    assert name in NAMES
    tables = review.review(Path(page.__file__).parent / "reviewed" / f"{name}.toml")
    assert all(len(entry.reason) > 10 and "::" in entry.tests for entry in (*tables.differs, *tables.outside))
    assert len({entry.tests for entry in (*tables.differs, *tables.outside)}) == len([*tables.differs, *tables.outside])


def test_a_table_with_other_words(tmp_path: Path) -> None:
    """A slip of the pen is told."""
    (tmp_path / "x.toml").write_text('[[differs]]\ntest = "a"\n', encoding="utf-8")
    with pytest.raises(SentinelError, match=r"x.toml has an entry with other words"):
        review.review(tmp_path / "x.toml")


def test_what_is_not_given_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework without a source distribution that holds its tests is not run, and that is told."""
    monkeypatch.setattr(places, "place", None)
    assert [line for line in page.lines({}, ("trl",)) if "not run" in line] == [
        "| trl | not run: no checkout is given | | | | | |"
    ]
