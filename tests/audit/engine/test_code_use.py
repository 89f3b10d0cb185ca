"""What a worker and its children use of a target's code, as events."""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.adapters import loading
from rl_sentinel.audit.engine.code_entries import is_supported
from rl_sentinel.audit.engine.code_use import CodeUse
from rl_sentinel.audit.sandbox.forked_events import forked_events
from rl_sentinel.audit.sandbox.request import Request

MODULE = (
    "def at_import():\n    return 1\n\n\ndef called():\n    return 2\n\n\ndef read():\n    return 3\n\n\nat_import()\n"
)


def test_recorder_is_made_on_request() -> None:
    request = Request(task="audit", framework="verl", root="/nonesuch", version="")
    assert CodeUse.for_request(request) is None


@pytest.mark.skipif(not is_supported(), reason="this interpreter does not say which functions were entered")
def test_use_of_the_loaded_worker_and_of_a_child(tmp_path: Path) -> None:
    (tmp_path / "house_module.py").write_text(MODULE, encoding="utf-8")

    def work(send: Callable[[dict[str, Any]], None]) -> None:
        sys.path.insert(0, str(tmp_path))
        loading.used.clear()  # of other tests
        use = CodeUse(tmp_path)
        module = importlib.import_module("house_module")
        with use.binding():
            module.called()
        send(use.loaded())
        use.begin()
        module.called()
        inspect.getsource(module.read)
        send(use.event())

    loaded, child = forked_events(work)
    assert loaded["functions"] == [["house_module.py", line] for line in (1, 5)]
    assert loaded["modules"] == ["house_module.py"]
    assert loaded["reads"] == []
    assert child == {"event": "used-code", "functions": [], "reads": [["house_module.py", 9]], "complete": True}
