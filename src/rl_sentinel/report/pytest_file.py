"""Render a finding as a pytest file that fails on the released code, passes once fixed, and needs no RL-Sentinel."""

import ast
import re
import textwrap
from types import CodeType

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit.findings import Finding
from rl_sentinel.audit.repro.script import EXIT_2_ON_ERROR
from rl_sentinel.report.repro import script

#: Last line of a script that decides whether the expectation holds.
_END = "raise SystemExit(0 if holds else 1)\n"

#: The lines by which a script ends with status 2 on an error; a test drops them, because pytest shows the error.
_EXIT_STATUS = "\n".join(EXIT_2_ON_ERROR) + "\n"

#: Lines of a script that print a result; and those that print numbers, which a test shows when its assertion fails.
_PRINT = re.compile(r"^print\(.*\)\n", re.MULTILINE)
_NUMBERS = re.compile(r'^print\("(\w+):", (\1\.tolist\(\))\)$', re.MULTILINE)

_IMPORT = re.compile(r"(?:from \S+ )?import .*\n")


def as_pytest(f: Finding, needs: Installation) -> str:
    """Convert the finding's script to a test file; empty if the script does not exit with a verdict.

    Imports at the start of the script stay at the start of the file. The rest becomes the body of the test in the same
    order, because some lines must run before the framework is imported.
    """
    text = script(f, needs).replace(_EXIT_STATUS, "")
    if not text.endswith(_END):
        return ""
    comments, _, code = text.removesuffix(_END).partition("from __future__ import annotations\n")
    install = comments.partition("\n")[0]
    imports = ""
    while match := _IMPORT.match(code):
        imports, code = imports + match.group(), code[match.end() :]
    body = textwrap.indent(_global(imports, code) + _PRINT.sub("", code).strip("\n"), "    ")
    shown = ", ".join(f"{name} {{{numbers}}}" for name, numbers in _NUMBERS.findall(code))
    message = f', f"{shown}"' if shown else ""
    head = f"{install}\nfrom __future__ import annotations\n\n{imports}"
    return f"{head}\n\ndef test_{test_name(f)}():\n{body}\n    assert holds{message}\n"


def _global(imports: str, code: str) -> str:
    """A statement for the imported names that the code assigns again: in a function they would be local, and unset."""
    nodes = [node for node in ast.parse(imports).body if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names}
    body = compile(f"def test():\n{textwrap.indent(code, '    ')}\n    pass", "", "exec")
    local = next(one for one in body.co_consts if isinstance(one, CodeType))
    names = sorted(imported & {*local.co_varnames, *local.co_cellvars})
    return f"global {', '.join(names)}\n" if names else ""


def test_name(f: Finding) -> str:
    """Law, function and setting as a Python identifier."""
    name = f"{f.law} {f.boundary.rpartition('.')[2]} {f.setting}".casefold()
    return re.sub(r"\W+", "_", name).strip("_")
