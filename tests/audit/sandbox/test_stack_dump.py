"""A stack as the fault handler writes it, read back as functions of the target."""

import os
import time
from pathlib import Path

import pytest

import misbehaving_work
from rl_sentinel.audit.sandbox.stack_dump import StackDump, functions

CODE = """def outer():
    def inner():
        pass
    inner()


class Kind:
    def method(self):
        outer()
"""


def test_lines_are_led_back_to_their_functions(tmp_path: Path) -> None:
    """Innermost first; files outside are left out; what is in no function is line 0."""
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    dump = (
        "Current thread 0x00 (most recent call first):\n"
        f'  File "{file}", line 3 in inner\n'
        f'  File "{file}", line 4 in outer\n'
        '  File "/elsewhere/code.py", line 8 in other\n'
        f'  File "{file}", line 9 in method\n'
        f'  File "{file}", line 7 in <module>\n'
    )
    assert functions(dump, tmp_path) == ["code.py:2", "code.py:1", "code.py:8", "code.py:0"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_answers_from_within_a_loop() -> None:
    place = StackDump()
    pid = os.fork()
    if not pid:
        place.install_handler()
        misbehaving_work.enters_loop()
        os._exit(0)
    time.sleep(0.5)
    found = place.read(pid, Path(misbehaving_work.__file__).parent)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    place.close()
    lines = [f.__code__.co_firstlineno for f in (misbehaving_work.loop, misbehaving_work.enters_loop)]
    assert found[:2] == [f"misbehaving_work.py:{n}" for n in lines]
