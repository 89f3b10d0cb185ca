"""Compare the verdicts of two audits: OLD and NEW are JSON reports, or source trees that each audit the TARGETs.

    python scripts/compare_verdicts.py old.json new.json
    python scripts/compare_verdicts.py ../old-tree . verl==0.9.1 slime@../slime

Prints every pair of law and boundary whose outcome or level differs, and the pairs that only one side has.
Exit status: 0 no difference, 1 differences, 2 bad input.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_sentinel.audit.verdict_changes import Result, differ, results_of_report

#: Target, law, boundary, setting.
Pair = tuple[str, str, str, str]

#: Runs the command line of the tree in argv[1], and no other one that is installed.
_AUDIT = """
import sys
import rl_sentinel
tree = sys.argv.pop(1)
if not rl_sentinel.__file__.startswith(tree):
    sys.exit(f"imported rl_sentinel from {rl_sentinel.__file__}, expected it in {tree}")
from rl_sentinel.cli.main import run
run()
"""

#: Longest reason that is printed.
_WIDTH = 160


class BadInputError(Exception):
    """An argument that cannot be used, in one line."""


def results(reports: Any, name: str) -> dict[Pair, Result]:  # noqa: ANN401 - JSON
    """The verdicts of a JSON report of one target or several.

    Raises:
        BadInputError: if it is not the report of an audit.
    """
    many = reports if isinstance(reports, list) else [reports]
    try:
        return {pair: one for report in many for pair, one in _verdicts(report, alone=len(many) == 1)}
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"has no {error}" if isinstance(error, KeyError) else f"is malformed ({error})"
        raise BadInputError(f"{name} {problem}, expected a report of `audit --json`") from error


def _verdicts(report: Mapping[str, Any], *, alone: bool) -> list[tuple[Pair, Result]]:
    target = "" if alone else report["target"]
    return [((target, *pair), result) for pair, result in results_of_report(report).items()]


def differences(old: Mapping[Pair, Result], new: Mapping[Pair, Result]) -> dict[str, list[str]]:
    """Lines by heading: law, and what became of it. A level counts as different where both sides state one."""
    groups: dict[str, list[str]] = {}
    for pair in sorted(old.keys() | new.keys()):
        before, after = old.get(pair), new.get(pair)
        target, law, boundary, setting = pair
        place = " ".join(filter(None, (target, f"{boundary} [{setting}]")))
        if before is None or after is None:
            side, one = ("gained", after) if before is None else ("lost", before)
            groups.setdefault(f"{law} {side}: {one}", []).append(f"{place}{_because('', one)}")
        elif differ(before, after):
            reasons = _because("old", before) + _because("new", after)
            groups.setdefault(f"{law} changed: {before} -> {after}", []).append(f"{place}{reasons}")
    return groups


def _because(side: str, result: Result | None) -> str:
    reason = " ".join(result.reason.split())[:_WIDTH] if result else ""
    return f"\n      {side}{': ' if side else ''}{reason}" if reason else ""


def load(source: str, targets: Sequence[str]) -> dict[Pair, Result]:
    """The verdicts of a report, or of the audit that a source tree makes of the targets.

    Raises:
        BadInputError: if there is no such report or tree, or its audit fails.
    """
    path = Path(source)
    if path.is_dir():
        return results(_audit(path.resolve(), targets), source)
    if targets:
        raise BadInputError(f"OLD or NEW is {source!r}, expected a folder with a source tree: targets are named")
    try:
        return results(json.loads(path.read_text(encoding="utf-8")), source)
    except OSError as error:
        raise BadInputError(f"{source} cannot be read ({error.strerror}), expected a report or a tree") from error
    except ValueError as error:
        raise BadInputError(f"{source} is malformed ({error}), expected a report of `audit --json`") from error


def _audit(tree: Path, targets: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    source = tree / "src"
    if not (source / "rl_sentinel").is_dir():
        raise BadInputError(f"{tree} is no source tree of rl_sentinel, expected src/rl_sentinel in it")
    if not targets:
        raise BadInputError(f"{tree} is a source tree, expected a TARGET that it audits: name one or more")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-c", _AUDIT, str(source), "audit", *targets, "--level", "hazard", "--json"]
        path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH", ""))))
        done = subprocess.run(
            [*command, str(report)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if not report.exists():
            message = (done.stderr.strip() or "no message").splitlines()[-1]
            raise BadInputError(f"audit by {tree} wrote no report: {message}")
        return json.loads(report.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Print the differences; returns the exit status."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("targets", metavar="TARGET", nargs="*")
    options = parser.parse_args(arguments)
    try:
        old, new = load(options.old, options.targets), load(options.new, options.targets)
    except BadInputError as error:
        print(f"compare_verdicts: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201 - a command's output
        return 2
    groups = differences(old, new)
    for heading, lines in groups.items():
        print(f"{heading}  [{len(lines)}]", *(f"    {line}" for line in lines), sep="\n")  # noqa: T201 - as above
    number = sum(map(len, groups.values()))
    print(f"{number} of {len(old.keys() | new.keys())} pairs differ")  # noqa: T201 - as above
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
