"""Asking another interpreter."""

import sys
from pathlib import Path

import pytest

from rl_sentinel.audit.source import interpreter
from rl_sentinel.core.errors import SentinelError


def _program(folder: Path, body: str) -> str:
    place = folder / "python"
    place.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    place.chmod(0o755)
    return str(place)


def _refusal(python: str) -> str:
    with pytest.raises(SentinelError) as told:
        interpreter.check_interpreter(python)
    return str(told.value)


def test_answer_is_kept_apart_from_what_is_printed(tmp_path: Path) -> None:
    talking = _program(tmp_path, f'echo 3 9; "{sys.executable}" "$@"; echo done; echo no >&2')
    assert interpreter.query(talking, "print('words')\nanswer([1, sys.argv[2]])", "x") == [1, "x"]
    assert interpreter.check_interpreter(talking) == talking


def test_old_interpreter_is_refused(tmp_path: Path) -> None:
    old = _program(
        tmp_path, f"""exec "{sys.executable}" -c "import sys; open(sys.argv[1], 'w').write('[3, 10]')" "$3" """
    )
    assert _refusal(old) == f"--python is {old!r} of version 3.10, expected Python 3.11 or newer"


def test_interpreter_without_torch_is_refused(tmp_path: Path) -> None:
    bare = _program(tmp_path, f'exec "{sys.executable}" -S -I "$@"')
    assert (
        _refusal(bare)
        == f"--python is {bare!r}, which lacks torch and numpy: install torch and numpy for this interpreter"
    )


def test_program_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_SECONDS", 1)
    endless = _program(tmp_path, "exec yes")
    assert _refusal(endless) == f"--python is {endless!r}, expected an interpreter that responds within 1 s"


def test_what_is_no_interpreter(tmp_path: Path) -> None:
    mute = _program(tmp_path, "exit 0")
    assert _refusal(mute) == f"--python is {mute!r}, expected a Python interpreter: it did not run Python code"
    assert _refusal(str(tmp_path)) == f"--python is {str(tmp_path)!r}, expected an interpreter (Permission denied)"
    assert _refusal("/no") == "--python is '/no', expected an interpreter (No such file or directory)"
