"""Choose a Python interpreter that can parse a source tree, because revisions use different syntax."""

from collections.abc import Sequence
from pathlib import Path

from rl_sentinel.audit.source.interpreter import query

#: Counts the files below the folder ``sys.argv[2]`` that this interpreter cannot parse.
_COUNT = """
import ast, pathlib, warnings
warnings.simplefilter("ignore")
def unreadable(file):
    try:
        ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return True
    return False
answer(sum(unreadable(file) for file in sorted(pathlib.Path(sys.argv[2]).rglob("*.py"))))
"""


def interpreter_for(root: Path, pythons: Sequence[str]) -> str:
    """The first interpreter that can parse all files of a tree, otherwise the interpreter that can parse most files.

    Raises:
        SentinelError: if an entry of ``pythons`` is not an interpreter.
    """
    counts = dict[str, int]()
    for python in pythons:
        counts[python] = int(query(python, _COUNT, str(root)))
        if not counts[python]:
            return python
    return min(pythons, key=counts.__getitem__)
