"""The command line itself: one line for every error, and nothing left running when it ends."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from command_line import run_cli
from processes import descendants, wait_until_ended
from rl_sentinel import __version__
from rl_sentinel.cli.main import run

LINE = '    """Group mean over all rows."""\n'

#: What runs the tests may ignore signals (nohup, a job in the background), which a child would inherit.
HEARD = (
    "import signal, sys; from rl_sentinel.cli.main import run; "
    "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL); run()"
)


def _started(tree: Path, cache: Path, errors: int = subprocess.PIPE) -> tuple["subprocess.Popen[str]", set[int]]:
    """An audit that hangs in a child, and what runs below it."""
    target = f"verl@{checkout(tree, MODULE.replace(LINE, LINE + '    while True: pass' + chr(10)))}"
    command = [sys.executable, "-c", HEARD, "audit", target, "--boundary", "*grpo*", "--jobs", "1"]
    env = os.environ | {"RL_SENTINEL_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
    found = set[int]()
    end = time.monotonic() + 120
    while len(found) < 2 and time.monotonic() < end:
        time.sleep(0.1)
        found = descendants(process.pid)
        if any(b"pip" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found if Path(f"/proc/{pid}").exists()):
            found = set()
    assert len(found) == 2, process.communicate()
    return process, found


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGTERM, 143, "rl-sentinel: ended by SIGTERM\n"),
        pytest.param(signal.SIGHUP, 129, "rl-sentinel: ended by SIGHUP\n", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "rl-sentinel: ended by SIGINT\n", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, "", marks=pytest.mark.slow),
    ],
    ids=["term", "hup", "int", "kill"],
)
def test_no_process_is_left_running(
    tmp_path: Path, cache: Path, number: signal.Signals, status: int, words: str
) -> None:
    process, found = _started(tmp_path / "tree", cache)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (status, words)
    assert wait_until_ended(found)


@pytest.mark.slow
def test_line_stands_at_a_terminal(tmp_path: Path, cache: Path) -> None:
    ours, theirs = pty.openpty()
    process, found = _started(tmp_path / "tree", cache, theirs)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    os.close(theirs)
    drawn = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while part := os.read(ours, 65536):
            drawn += part
    os.close(ours)
    assert process.returncode == 130
    assert drawn.endswith(b"rl-sentinel: ended by SIGINT\r\n"), drawn[-200:]
    assert wait_until_ended(found)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["replay"], "Missing argument 'FILE': see rl-sentinel replay --help"),
        (["audit", "verl", "--nonesuch"], "No such option: --nonesuch: see rl-sentinel audit --help"),
        (["nonesuch"], "No such command 'nonesuch': see rl-sentinel --help"),
    ],
    ids=["argument", "option", "command"],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rl-sentinel", *arguments])
    with pytest.raises(SystemExit) as ended:
        run()
    assert (ended.value.code, capsys.readouterr().err) == (2, f"rl-sentinel: {line}\n")


def test_system_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / ("x" * 300)
    monkeypatch.setattr(sys, "argv", ["rl-sentinel", "audit", "rl_sentinel", "--json", str(place)])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"rl-sentinel: {place}: File name too long\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(capsys, "--version") == (0, f"rl-sentinel {__version__}\n", "")
