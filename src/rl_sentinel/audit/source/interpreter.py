"""Query another Python interpreter for its version and packages."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rl_sentinel.core.errors import SentinelError

#: Seconds within which an interpreter must answer; importing torch from a cold disk is slow.
_SECONDS = 120

#: The answer is written to a file, because site packages may print text at startup.
_BEGIN = "import json, sys\ndef answer(x):\n    with open(sys.argv[1], 'w') as f: json.dump(x, f)\n"


def query(python: str, code: str, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    """Run Python lines in another interpreter, and return the value that they pass to ``answer(...)``.

    The arguments are ``sys.argv[2:]``.

    Raises:
        SentinelError: if ``python`` is not an interpreter, does not end in time, or returns no value.
    """
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "answer.json"
        command = [python, "-c", _BEGIN + code, str(place), *arguments]
        quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            subprocess.run(command, check=False, timeout=_SECONDS, **quiet)  # noqa: S603 - the user's interpreter
            return json.loads(place.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired as error:
            raise SentinelError(
                f"--python is {python!r}, expected an interpreter that responds within {_SECONDS} s"
            ) from error
        except FileNotFoundError as error:
            if error.filename == str(place):
                raise SentinelError(
                    f"--python is {python!r}, expected a Python interpreter: it did not run Python code"
                ) from error
            raise SentinelError(f"--python is {python!r}, expected an interpreter ({error.strerror})") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "the program returned no result"
            raise SentinelError(f"--python is {python!r}, expected an interpreter ({reason})") from error


def check_interpreter(python: str) -> str:
    """Return the path if it is an interpreter that can run a worker.

    Raises:
        SentinelError: if the path is not an interpreter, or the interpreter is older than 3.11 or lacks torch or numpy.
    """
    if python == sys.executable:
        return python
    major, minor = query(python, "answer(sys.version_info[:2])")
    if (major, minor) < (3, 11):
        raise SentinelError(f"--python is {python!r} of version {major}.{minor}, expected Python 3.11 or newer")
    find_missing = "from importlib.util import find_spec\nanswer([n for n in sys.argv[2:] if find_spec(n) is None])"
    missing = query(python, find_missing, "torch", "numpy")
    if missing:
        names = " and ".join(missing)
        raise SentinelError(f"--python is {python!r}, which lacks {names}: install {names} for this interpreter")
    return python
