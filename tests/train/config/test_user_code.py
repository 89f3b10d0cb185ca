"""Code of one's own: each place is its own module, and whatever the code does is one line."""

import copy
import pickle
import sys
from pathlib import Path

import pytest
import torch

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.train.config.user_code import called, got, imported, is_loss, is_ready, is_tensor, looked_at, placed


def _file(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def test_place_of_a_file_is_imported(tmp_path: Path) -> None:
    """Once, whatever its path is called; and what is no Python is told."""
    place = _file(tmp_path / "mine_here.py", "VALUE = []\n")
    (tmp_path / "link.py").symlink_to(place)
    found = imported("path", f"{place}:VALUE")
    assert imported("path", f"{place}:VALUE") is found
    assert imported("path", f"{tmp_path / 'link.py'}:VALUE") is found
    _file(tmp_path / "none_here.py", "def (:\n")
    with pytest.raises(SentinelError, match=r"path '.*none_here.py:VALUE' cannot be imported \(invalid syntax"):
        imported("path", f"{tmp_path / 'none_here.py'}:VALUE")


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    """Nor is one that of a module which is loaded, under whose name nothing is run."""
    for name in "ab":
        _file(tmp_path / name / "mine.py", f"def name():\n    return {name!r}\n")
        _file(tmp_path / name / "json.py", f"def dumps():\n    return {name!r}\n")
    for name in "ab":
        assert imported("loss", f"{tmp_path / name / 'mine.py'}:name")() == name
        assert imported("loss", f"{tmp_path / name / 'json.py'}:dumps")() == name
    before = vars(sys.modules["json"]).copy()
    with pytest.raises(SentinelError, match=r"cannot be imported \(module 'own_json_.*' has no attribute 'other'"):
        imported("loss", f"{tmp_path / 'a' / 'json.py'}:other")
    assert vars(sys.modules["json"]) == before


def test_class_of_a_file_is_pickled(tmp_path: Path) -> None:
    """Its module is known by its name."""
    kind = imported("environment.name", f"{_file(tmp_path / 'mine.py', 'class Own: at = 3')}:Own")
    assert pickle.loads(pickle.dumps(kind())).at == 3  # noqa: S301 - our own
    assert copy.deepcopy(kind()).at == 3


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('no GPU\\n here')", "RuntimeError: no GPU here, at {place}:2"),
        ("{}['mood']", "KeyError: 'mood', at {place}:2"),
        ("1 / 0", "ZeroDivisionError: division by zero, at {place}:2"),
        ("assert 1 > 2", "AssertionError, at {place}:2"),
        ("raise SystemExit(3)", "SystemExit: 3, at {place}:2"),
        ("nothing", "NameError: name 'nothing' is not defined, at {place}:2"),
    ],
)
def test_whatever_an_import_raises_is_told(tmp_path: Path, code: str, words: str) -> None:
    """In its own words, with the line; and it is run again when it was mended."""
    place = _file(tmp_path / "mine.py", f"import os\n{code}\n")
    with pytest.raises(SentinelError) as told:
        imported("path", f"{place}:f")
    way = "name pkg.module:name or file.py:name"
    assert str(told.value) == f"path '{place}:f' cannot be imported ({words.format(place=place)}): {way}"
    _file(place, "f = 1\n")
    assert imported("path", f"{place}:f") == 1


def test_what_own_code_raises_is_told_with_its_own_line(tmp_path: Path) -> None:
    """Not that of the library which it called; an end of the process is none of its own."""
    text = (
        "import torch\ndef f(x):\n    return torch.ones(2) @ torch.ones(x)\n\ndef g(x):\n    raise KeyboardInterrupt\n"
    )
    place = _file(tmp_path / "mine.py", text)
    f, g = (imported("loss", f"{place}:{n}") for n in "fg")
    with pytest.raises(
        SentinelError, match=rf"^loss 'mine' failed \(RuntimeError: .*, at {place}:3\), expected an ans"
    ):
        called("loss 'mine'", f, 3)
    with pytest.raises(KeyboardInterrupt):
        called("loss 'mine'", g, 3)


def test_what_is_no_function_is_refused() -> None:
    """With the key."""
    with pytest.raises(SentinelError, match=r"^path 'math:pi' is 3.14, expected a function: name one"):
        looked_at("path", "math:pi", 3.14, (), None)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(SentinelError, match=r"^loss 'builtins:dict' does not tell its parameters, expected"):
        looked_at("loss", "builtins:dict", dict, (), None)


def test_function_of_ours_raises_as_it_is() -> None:
    """Only a number that it refuses is told with its table."""

    def ours(x: float, *, clip: float) -> float:
        raise InputError(f"clip is {clip}, expected less") if clip > 1 else ValueError("a fault of ours")

    with pytest.raises(InputError, match=r"^loss.clip is 2.0, expected less$"):
        looked_at("loss", "ppo", ours, {"clip"}, None)(1.0, clip=2.0)
    with pytest.raises(ValueError, match=r"^a fault of ours$"):
        looked_at("loss", "ppo", ours, {"clip"}, None)(1.0, clip=0.5)


def test_number_of_another_is_not_told_with_the_table() -> None:
    """A column is no number of the recipe."""
    with pytest.raises(InputError, match=r"^reward\[0\] is nan$"), placed("loss", {"clip"}):
        raise InputError("reward[0] is nan")


def test_what_functions_give() -> None:
    """A loss is one number with a gradient, where its columns have one."""
    column = torch.zeros(2, requires_grad=True)
    assert is_loss(column.sum(), (column,)) == ""
    assert is_loss(torch.zeros(()), (column.detach(),)) == ""
    assert is_loss(torch.zeros(()), (column,)) == "one with a gradient, made of logprob"
    for wrong in (None, column, torch.zeros((), dtype=torch.long), 3.0):
        assert is_loss(wrong, (column,)) == "a tensor of one number, without a dimension"
    assert is_tensor(column, ()) == ""
    assert is_tensor(3.0, ()) == "a tensor of advantages"
    assert is_ready(None, ()) == "a Ready, as signal.path.loss_ready gives"
    assert (got(column), got("x" * 99)) == ("a tensor of shape [2] with a gradient", "'" + "x" * 59 + "...")
