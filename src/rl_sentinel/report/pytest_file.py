"""A pytest file of a finding: it fails as released and passes once fixed, and needs torch and the framework only."""

import re
import textwrap

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding
from rl_sentinel.audit.repro.script import EXIT_2_ON_ERROR
from rl_sentinel.report.repro import script

#: How a script ends that judges what it computed.
_END = "raise SystemExit(0 if holds else 1)\n"

#: What a script needs to end with status 2 on an error, and a test does not: pytest shows the error itself.
_EXIT_STATUS = "\n".join(EXIT_2_ON_ERROR) + "\n"

#: A result that a script prints; pytest shows the values of a failing test.
_PRINT = re.compile(r"^print\(.*\)\n", re.MULTILINE)

_IMPORT = re.compile(r"(?:from \S+ )?import .*\n")


def as_pytest(f: Finding, needs: Installation) -> str:
    """The file, made of the finding's script; empty where the finding has no script that judges.

    Imports at the start of the script stay at the start of the file. The rest is the body of the test, in its order:
    what a framework needs before it is imported stays before it.
    """
    text = script(f, needs).replace(_EXIT_STATUS, "")
    if not text.endswith(_END):
        return ""
    comments, _, rest = text.removesuffix(_END).partition("from __future__ import annotations\n")
    install = comments.partition("\n")[0]
    imports = ""
    while found := _IMPORT.match(rest):
        imports, rest = imports + found.group(), rest[found.end() :]
    body = textwrap.indent(_PRINT.sub("", rest).strip("\n"), "    ")
    head = f"{install}\nfrom __future__ import annotations\n\n{imports}"
    return f"{head}\n\ndef test_{test_name(f)}():\n{body}\n    assert holds\n"


def test_name(f: Finding) -> str:
    """Law, function and setting, as a name in Python."""
    words = f"{f.law} {f.boundary.rpartition('.')[2]} {f.setting}".casefold()
    return re.sub(r"\W+", "_", words).strip("_")
