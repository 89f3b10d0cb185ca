"""The scripts and tests of an audit's findings, run in the environment that their first line describes.

    python scripts/proof/finding_scripts.py verl==0.9.1
    python scripts/proof/finding_scripts.py skyrl==0.3.0 --python /usr/bin/python3.12 --environment /tmp/skyrl

Each runs twice: with the framework as it is installed, where a script must exit 1 and a test must fail, and with the
corrections of `scripts/proof/corrections`, where a script must exit 0 and a test must pass. Exit status: 0 as expected,
1 not.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from repair import corrected
from running import audited, digest

from rl_sentinel.audit.source.cache import home
from rl_sentinel.audit.source.fetch import source
from rl_sentinel.audit.source.target_spec import TargetSpec, parse_target

#: The first line of a script: a version of Python where it matters, a command, and a note.
_FIRST = re.compile(r"# (?:Python (?P<python>[\d.]+): )?(?P<command>.*?)(?:  # .*)?")

#: Seconds that one script may take, and characters that the table holds of what it printed.
_LIMIT, _WIDTH = 600, 100


#: How a test ends.
_FAILED, _PASSED = "fails", "passes"

#: The newest release of each framework, and the last audited revision of the one that has none.
_TARGETS = ("verl==0.9.1", "areal==1.0.4", "skyrl==0.3.0", "trl==1.16.0", "slime#624b824a8")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended: its exit status, or ``error`` where it raised, and what it printed of both sides."""

    status: str
    said: str

    def __str__(self) -> str:
        """Both, as a cell of a table."""
        return f"{self.status}: {self.said[:_WIDTH].replace('|', '/')}"


@dataclass(frozen=True, slots=True)
class Ran:
    """One script: its name, how it and its test ended with the release, and with the corrections."""

    name: str
    released: Ended
    corrected: Ended
    test_released: str
    test_corrected: str

    @property
    def proven(self) -> bool:
        """Whether the script and the test tell the release from the corrections."""
        tests = (self.test_released, self.test_corrected)
        return (self.released.status, self.corrected.status) == ("1", "0") and tests == (_FAILED, _PASSED)


def all_lines() -> Iterator[str]:
    """A table for each framework; SkyRL needs an interpreter python3.12."""
    for target in _TARGETS:
        name, _, revision = target.partition("#")
        path = os.environ.get(name.upper(), "")
        if revision and not path:
            yield f"{target} is not run: {name.upper()} is not set."
        else:
            yield from (line.replace(path, "HISTORY") if path else line for line in lines(_spelled(target, path)))
        yield ""


def _spelled(target: str, path: str) -> str:
    name, _, revision = target.partition("#")
    return f"{name}@{path}#{revision}" if revision else target


def lines(target: str, environment: Path | None = None, python: str = "") -> Iterator[str]:
    """A table: one row per script.

    Raises:
        SystemExit: if there is no environment, or a script is not proven.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        report, _ = audited(target, "--report", f"repro={folder / 'scripts'}")
        files = sorted((folder / "scripts").glob("*.py"))
        scripts = [file for file in files if not file.name.startswith("test_")]
        first = {script.read_text(encoding="utf-8").partition("\n")[0] for script in scripts}
        if len(first) != 1:
            raise SystemExit(f"first lines of {len(scripts)} scripts are {sorted(first)}, expected one for all")
        at = _environment(parse_target(target), first.pop(), environment, python)
        results = list(_results(parse_target(target).framework.package, scripts, at, folder))
    yield f"{digest(report)}: {len(results)} scripts, {sum(r.proven for r in results)} proven."
    yield ""
    yield "| script | released | corrected | test |"
    yield "|---|---|---|---|"
    for ran in results:
        yield f"| {ran.name} | {ran.released} | {ran.corrected} | {ran.test_released}, {ran.test_corrected} |"
    if wrong := [ran.name for ran in results if not ran.proven]:
        raise SystemExit(f"expected 1, 0, {_FAILED} and {_PASSED}: {', '.join(wrong)}")


def _results(package: str, scripts: list[Path], environment: Path, scratch: Path) -> Iterator[Ran]:
    python = environment / "bin" / "python"
    find = f"import importlib.util as u; print(*u.find_spec({package!r}).submodule_search_locations)"
    installed = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True, cwd=scratch)
    corrected(Path(installed.stdout.strip()), scratch / "corrected" / package)
    patched = {"PYTHONPATH": str(scratch / "corrected")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        plain = pool.map(lambda script: _run(python, script, {}), scripts)
        changed = pool.map(lambda script: _run(python, script, patched), scripts)
        tests = [_tests(python, scratch / "scripts", more) for more in ({}, patched)]
        for script, *ended in zip(scripts, plain, changed, strict=True):
            yield Ran(script.stem, *ended, *(outcomes.get(_test_of(script), "no test") for outcomes in tests))


def _test_of(script: Path) -> str:
    """The module of a script's test."""
    return f"test_{re.sub(r'[^A-Za-z0-9]+', '_', script.stem)}"


def _tests(python: Path, folder: Path, more: dict[str, str]) -> dict[str, str]:
    """The test files of a folder, without suffix -> how the test ended."""
    report = folder / "tests.xml"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", folder]
    subprocess.run(command, capture_output=True, check=False, cwd=folder, env=_clean(python, folder, more))
    return {case.get("classname", ""): _outcome(case) for case in ET.parse(report).iter("testcase")}  # noqa: S314 - of the command above


def _outcome(case: ET.Element) -> str:
    """How a test ended; an exception other than a failed assertion is an error."""
    problem = next(iter(case), None)
    if problem is None:
        return _PASSED
    said = problem.get("message", "")
    is_verdict = problem.tag == "failure" and said.startswith(("AssertionError", "assert "))
    return _FAILED if is_verdict else f"error: {said[:_WIDTH].replace('|', '/')}"


def _run(python: Path, script: Path, more: dict[str, str]) -> Ended:
    env = _clean(python, script.parent, more)
    ran = subprocess.run(
        [python, script], capture_output=True, text=True, check=False, cwd=script.parent, env=env, timeout=_LIMIT
    )
    raised = ran.returncode not in {0, 1}
    if raised:
        return Ended("error", (ran.stderr.strip() or "no message").splitlines()[-1])
    sides = [line for line in ran.stdout.splitlines() if line.startswith(("expected", "observed"))]
    return Ended(str(ran.returncode), ", ".join(sides or ran.stdout.strip().splitlines()[-1:]))


def _clean(python: Path, home_folder: Path, more: dict[str, str]) -> dict[str, str]:
    """The environment variables of a script or test."""
    return {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(home_folder), "OMP_NUM_THREADS": "1", **more}


def _environment(target: TargetSpec, first: str, folder: Path | None, python: str) -> Path:
    """The environment of a first line; made where it is not there yet."""
    parts = _FIRST.fullmatch(first)
    if parts is None:
        raise SystemExit(f"first line is {first!r}, expected a command")
    place = folder or home() / "environments" / f"{target.framework.name}-{target.version or 'checkout'}"
    made = place / "made-by"
    if made.is_file() and made.read_text(encoding="utf-8") == first:
        return place
    interpreter = python or (f"python{parts['python']}" if parts["python"] else sys.executable)
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", place], check=True)
    with tempfile.TemporaryDirectory() as beside:
        if not target.version:
            checkout = Path(beside) / target.framework.name
            shutil.copytree(source(target).root, checkout)
            # A setup.py may read it, a history may lack it, and the command installs without requirements.
            (checkout / "requirements.txt").touch()
        command = f". {place}/bin/activate && {parts['command']} && pip install pytest"
        ended = subprocess.run(["/bin/sh", "-c", command], cwd=beside, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{parts['command']} ended with {ended.returncode}: {ended.stderr[-400:]}")
    made.write_text(first, encoding="utf-8")
    return place


def main() -> None:
    """Print the table of one target."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("--environment", type=Path, help="folder of the environment (default: in the cache)")
    parser.add_argument("--python", default="", help="interpreter that makes the environment")
    asked = parser.parse_args()
    for line in lines(asked.target, asked.environment, asked.python):
        print(line)  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
