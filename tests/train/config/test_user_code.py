"""User code is imported and called, and every error is one line."""

import copy
import inspect
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.train.config.user_code import (
    as_loss,
    call_user_code,
    check_advantages,
    check_loss,
    check_ready,
    describe,
    import_object,
    table_in_errors,
    wrap_function,
)


def _file(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def test_file_is_imported_once(tmp_path: Path) -> None:
    place = _file(tmp_path / "mine_here.py", "VALUE = []\n")
    (tmp_path / "link.py").symlink_to(place)
    value = import_object("path", f"{place}:VALUE")
    assert import_object("path", f"{place}:VALUE") is value
    assert import_object("path", f"{tmp_path / 'link.py'}:VALUE") is value
    _file(tmp_path / "none_here.py", "def (:\n")
    with pytest.raises(SentinelError, match=r"path '.*none_here.py:VALUE' cannot be imported \(invalid syntax"):
        import_object("path", f"{tmp_path / 'none_here.py'}:VALUE")


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for name in "ab":
        _file(tmp_path / name / "mine.py", f"def name():\n    return {name!r}\n")
        _file(tmp_path / name / "json.py", f"import re\n\ndef dumps():\n    return {name!r}\n")
    for name in "ab":
        assert import_object("loss", f"{tmp_path / name / 'mine.py'}:name")() == name
        assert import_object("loss", f"{tmp_path / name / 'json.py'}:dumps")() == name
    before = vars(sys.modules["json"]).copy()
    with pytest.raises(SentinelError, match=r": 'other' is not defined in .*json.py, expected one of dumps$"):
        import_object("loss", f"{tmp_path / 'a' / 'json.py'}:other")
    assert vars(sys.modules["json"]) == before


def test_class_of_a_file_is_pickled(tmp_path: Path) -> None:
    kind = import_object("environment.name", f"{_file(tmp_path / 'mine.py', 'class Own: at = 3')}:Own")
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
def test_import_error_is_one_line(tmp_path: Path, code: str, words: str) -> None:
    place = _file(tmp_path / "mine.py", f"import os\n{code}\n")
    with pytest.raises(SentinelError) as error:
        import_object("path", f"{place}:f")
    assert str(error.value) == f"path '{place}:f' cannot be imported ({words.format(place=place)}): fix it there"
    _file(place, "f = 1\n")
    assert import_object("path", f"{place}:f") == 1


def test_a_signal_that_ends_the_process_is_no_error_of_the_function() -> None:
    class Ended(SystemExit):
        """As the command line raises it in a signal handler."""

    def ended() -> None:
        raise Ended(143)

    with pytest.raises(Ended):
        call_user_code("environment.reward 'f'", ended)


def test_error_names_the_line_of_the_user_file(tmp_path: Path) -> None:
    text = (
        "import torch\ndef f(x):\n    return torch.ones(2) @ torch.ones(x)\n\ndef g(x):\n    raise KeyboardInterrupt\n"
    )
    place = _file(tmp_path / "mine.py", text)
    f, g = (import_object("loss", f"{place}:{n}") for n in "fg")
    with pytest.raises(SentinelError, match=rf"^loss 'mine' raised RuntimeError: .*, at {place}:3: fix it there$"):
        call_user_code("loss 'mine'", f, 3)
    with pytest.raises(KeyboardInterrupt):
        call_user_code("loss 'mine'", g, 3)


def test_non_function_is_rejected() -> None:
    words = r"^path 'math:pi' is 3.14\d*, expected a function: write file.py:function or pkg.module:function$"
    with pytest.raises(SentinelError, match=words):
        wrap_function("path", "math:pi", 3.14, (), None)  # type: ignore[arg-type]  # rejected
    words = "^loss 'builtins:dict' has no signature, expected a Python function: name a Python function that calls it$"
    with pytest.raises(SentinelError, match=words):
        wrap_function("loss", "builtins:dict", dict, (), None)


def test_shipped_function_raises_its_own_errors() -> None:
    def ours(x: float, *, clip: float) -> float:
        raise InputError(f"clip is {clip}, expected less") if clip > 1 else ValueError("a bug of the library")

    with pytest.raises(InputError, match=r"^loss.clip is 2.0, expected less$"):
        wrap_function("loss", "ppo", ours, {"clip"}, None)(1.0, clip=2.0)
    with pytest.raises(ValueError, match=r"^a bug of the library$"):
        wrap_function("loss", "ppo", ours, {"clip"}, None)(1.0, clip=0.5)


def test_column_errors_get_no_table() -> None:
    with pytest.raises(InputError, match=r"^reward\[0\] is nan$"), table_in_errors("loss", {"clip"}):
        raise InputError("reward[0] is nan")


def test_results_are_checked() -> None:
    column = torch.zeros(2, requires_grad=True)
    assert check_loss(column.sum(), (column,)) == ""
    assert check_loss(torch.zeros(()), (column.detach(),)) == ""
    assert check_loss(torch.zeros(()), (column,)) == "a loss with a gradient to logprob"
    for wrong in (None, column, torch.zeros((), dtype=torch.long), 3.0):
        assert check_loss(wrong, (column,)) == "a float tensor without dimensions"
    assert check_advantages(column, ()) == ""
    for wrong in (3.0, column.half(), column.long()):
        assert check_advantages(wrong, ()) == "a tensor of advantages in float32 or float64"
    assert check_ready(None, ()) == "a Ready, the type that signal.path.loss_ready returns"
    assert (describe(column), describe("x" * 99)) == ("a tensor of shape [2] with a gradient", "'" + "x" * 59 + "...")


@pytest.mark.parametrize("place", ["nope", ":name", "module:"])
def test_a_name_without_its_module_is_named(place: str) -> None:
    with pytest.raises(SentinelError, match=r"path is '.*', expected pkg.module:name or file.py:name"):
        import_object("path", place)


def _any_order(advantage: Tensor, *, logprob: Tensor, aggregation: object) -> Tensor:
    return (advantage * logprob).sum()


def _all_named(**columns: Any) -> Tensor:
    return _any_order(columns["advantage"], logprob=columns["logprob"], aggregation=None)


def _with_more(logprob: Tensor, **columns: Tensor) -> Tensor:
    return (logprob * columns["advantage"]).sum()


@pytest.mark.parametrize("loss", [_any_order, _with_more, _all_named, partial(_any_order)])
def test_a_loss_takes_log_probs_wherever_its_signature_has_them(loss: Callable[..., Tensor]) -> None:
    found = as_loss("own.py:loss", loss)
    logprob, advantage = torch.tensor([2.0]), torch.tensor([3.0])
    assert found(logprob, advantage=advantage, aggregation=None) == 6
    assert inspect.signature(found) == inspect.signature(loss)


def test_a_loss_without_an_aggregation_is_one_line() -> None:
    def loss(logprob: Tensor, advantage: Tensor) -> Tensor:
        return (logprob * advantage).mean()

    with pytest.raises(SentinelError, match=r"^loss 'own.py:loss' has no parameter aggregation, expected one: divide"):
        as_loss("own.py:loss", loss)
