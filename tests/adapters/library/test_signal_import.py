"""Another copy of the signal library in the place of this one."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rl_sentinel
import rl_sentinel.signal
from rl_sentinel.adapters.library.signal_import import import_from
from rl_sentinel.core.errors import Unbindable

SIGNAL = "rl_sentinel.signal"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A tree with a library of one part; what is imported is put back."""
    before, own = dict(sys.modules), rl_sentinel.signal
    folder = tmp_path / "rl_sentinel" / "signal"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "groups.py").write_text("COPY = True\n", encoding="utf-8")
    yield tmp_path
    for name in [n for n in sys.modules if n == SIGNAL or n.startswith(f"{SIGNAL}.")]:
        del sys.modules[name]
    sys.modules.update({n: m for n, m in before.items() if n == SIGNAL or n.startswith(f"{SIGNAL}.")})
    vars(rl_sentinel)["signal"] = own


def test_parts_come_from_the_copy(copy: Path) -> None:
    importlib.import_module(f"{SIGNAL}.kl")
    import_from(copy)
    assert importlib.import_module(f"{SIGNAL}.groups").COPY
    assert Path(str(rl_sentinel.signal.__file__)).is_relative_to(copy)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{SIGNAL}.kl")


def test_the_library_itself_is_left_alone() -> None:
    groups = importlib.import_module(f"{SIGNAL}.groups")
    import_from(Path(rl_sentinel.__file__).parents[1])
    assert sys.modules[f"{SIGNAL}.groups"] is groups


def test_a_tree_without_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unbindable, match=r"^rl_sentinel\.signal is absent in .*, expected .*signal$"):
        import_from(tmp_path)
