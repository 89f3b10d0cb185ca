"""The worker is started clean, read to its end, and never outlives its reader."""

import os
import sys
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from processes import descendants, wait_until_ended
from rl_sentinel.audit.sandbox.worker_process import events, request
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.core.errors import SentinelError


@pytest.fixture(autouse=True)
def _aside(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path_factory.getbasetemp() / "driver-cache"))


def _target(folder: Path, prelude: str) -> str:
    return f"verl@{checkout(folder / 'tree', prelude + MODULE)}"


@pytest.mark.slow
def test_request_carries_provenance(tmp_path: Path) -> None:
    job, source = request(parse_target(_target(tmp_path, "")), "audit", seed=3)
    assert (job.task, job.framework, job.seed, job.version) == ("audit", "verl", 3, "")
    assert job.target == {"spec": f"verl@{tmp_path / 'tree'}", "commit": "", "digest": source.digest}
    assert len(source.digest) == 64


@pytest.mark.slow
def test_worker_sees_a_scrubbed_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "x")
    seen = tmp_path / "seen.txt"
    prelude = (
        "import os\n"
        f"seen = open({str(seen)!r}, 'w')\n"
        "print(os.environ.get('MY_SECRET'), sorted(os.listdir(os.environ['HOME'])), file=seen, flush=True)\n"
    )
    job, _ = request(parse_target(_target(tmp_path, prelude)), "boundaries")
    assert [e for e in events(job) if e["event"] == "boundary"]
    assert seen.read_text(encoding="utf-8") == "None ['output.txt', 'request.json']\n"


@pytest.mark.slow
def test_temporary_files_of_a_target_are_gone_after_the_run(tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    prelude = (
        "import tempfile\n"
        f"print(tempfile.mkdtemp(), tempfile.mkstemp()[1], sep='\\n', file=open({str(seen)!r}, 'w'), flush=True)\n"
    )
    job, _ = request(parse_target(_target(tmp_path, prelude)), "boundaries")
    assert [e for e in events(job) if e["event"] == "boundary"]
    left = [Path(line) for line in seen.read_text(encoding="utf-8").splitlines()]
    assert len(left) == 2
    assert not any(path.exists() for path in left)


@pytest.mark.slow
def test_another_environment_gets_our_code_and_none_of_our_packages(tmp_path: Path) -> None:
    python, seen = tmp_path / "python", tmp_path / "seen.txt"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    prelude = f"import os\nprint(os.listdir(os.environ['PYTHONPATH']), file=open({str(seen)!r}, 'w'), flush=True)\n"
    job, _ = request(parse_target(_target(tmp_path, prelude)), "boundaries")
    assert [e for e in events(job, str(python)) if e["event"] == "boundary"]
    assert seen.read_text(encoding="utf-8") == "['rl_sentinel']\n"


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_compiled_code_is_left_in_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path if kept else tmp_path / "cache"))
    job, source = request(parse_target(_target(tmp_path, "")), "boundaries")
    assert [e for e in events(job) if e["event"] == "boundary"]
    assert bool(list(source.root.rglob("*.pyc"))) == kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prelude", "how"),
    [
        ("import os\nprint('last words', flush=True)\nos._exit(3)\n", "ended with exit status 3"),
        ("import os\nprint('last words', flush=True)\nos.kill(os.getpid(), 9)\n", "was killed by SIGKILL"),
    ],
    ids=["exits", "is killed"],
)
def test_worker_that_dies_is_told(tmp_path: Path, prelude: str, how: str) -> None:
    job, _ = request(parse_target(_target(tmp_path, prelude)), "boundaries")
    with pytest.raises(SentinelError) as told:
        list(events(job))
    memory = "for lack of memory or " if "SIGKILL" in how else ""
    assert str(told.value) == (
        f"the worker {how} before it finished, maybe {memory}because of the target's code, which runs when it is "
        "imported; last line of the worker's output: last words"
    )


@pytest.mark.slow
def test_worker_ends_with_the_generator(tmp_path: Path) -> None:
    job, _ = request(parse_target(_target(tmp_path, "")), "audit")
    stream = events(job)
    next(stream)
    running = descendants(os.getpid())
    assert running
    stream.close()
    assert wait_until_ended(running)
