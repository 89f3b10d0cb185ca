"""An import that does not end is interrupted, told by name, and not tried again."""

import importlib
import sys
import time
from pathlib import Path

import pytest

from rl_sentinel.audit.sandbox.import_timeout import import_time_limit


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "clock", "words"),
    [
        (
            "while True: pass",
            60.0,
            (
                "import of endless_a was stopped because no other import started within 0.3 s of processor time: "
                "keep long or blocking work out of a module's top level"
            ),
        ),
        (
            "import time\ntime.sleep(60)",
            3.0,
            (
                "import of endless_a was stopped because no other import started within 3 s with almost no "
                "processor time: "
                "keep long or blocking work out of a module's top level"
            ),
        ),
    ],
    ids=["loops", "sleeps"],
)
def test_endless_module_is_refused_by_name(modules: Path, body: str, clock: float, words: str) -> None:
    (modules / "endless_a.py").write_text(body, encoding="utf-8")
    (modules / "endless_b.py").write_text("import endless_a", encoding="utf-8")
    (modules / "endless_c.py").write_text("VALUE = 1", encoding="utf-8")
    with import_time_limit(cpu=0.3, clock=clock):
        with pytest.raises(TimeoutError) as first:
            importlib.import_module("endless_a")
        began = time.process_time()
        with pytest.raises(TimeoutError) as second:
            importlib.import_module("endless_b")
        assert time.process_time() - began < 0.2
        assert importlib.import_module("endless_c").VALUE == 1
    assert str(first.value) == str(second.value) == words
    sys.modules.pop("endless_c")


def test_nothing_is_left_behind() -> None:
    before = list(sys.meta_path)
    with import_time_limit(cpu=0.2, clock=0.4):
        assert sys.meta_path != before
    assert sys.meta_path == before
    time.sleep(0.5)


def test_busy_module_is_not_taken_for_a_sleeper(modules: Path) -> None:
    body = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nVALUE = 2"
    (modules / "endless_d.py").write_text(body, encoding="utf-8")
    with import_time_limit(cpu=30.0, clock=0.1):
        assert importlib.import_module("endless_d").VALUE == 2
    sys.modules.pop("endless_d")
