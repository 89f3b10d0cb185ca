"""Write the files of an audit (JSON, reports, known file), all at the end."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.findings import Finding
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.cli.output_paths import folder, put, writable
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report import html, issue, junit, markdown, pytest_file, repro, sarif
from rl_sentinel.report.json import as_json
from rl_sentinel.report.results import Results

#: Kind of report that is one file for all targets -> the function that renders it.
FORMATS: Mapping[str, Callable[[Sequence[Results]], str]] = {
    "html": html.as_html,
    "junit": junit.as_junit,
    "markdown": markdown.as_markdown,
    "sarif": sarif.as_sarif,
}

#: The value of ``--json`` that means standard output.
STDOUT = Path("-")


@dataclass(slots=True)
class Outputs:
    """Output paths, and the results so far.

    Attributes:
        issues, repros: folders for one issue, and for one script, evidence file and test of each finding.
        files: kind and path of each report in one file.
        json_path: file of the JSON report, or ``STDOUT``.
        known: the user's known file, if it is to be updated.
        results: the results of each target.
        shown: the findings that are shown, each with the command that installs its target.
        audited: these findings in the form of a known file.
        accepted: the content of the known file before the audit.
    """

    issues: list[Path] = field(default_factory=list)
    repros: list[Path] = field(default_factory=list)
    files: list[tuple[str, Path]] = field(default_factory=list)
    json_path: Path | None = None
    known: Path | None = None
    results: list[Results] = field(default_factory=list)
    shown: list[tuple[Installation, Finding]] = field(default_factory=list)
    audited: list[knowledge.AuditedFinding] = field(default_factory=list)
    accepted: knowledge.KnownFile = field(default_factory=knowledge.KnownFile)

    @classmethod
    def checked(cls, reports: Sequence[str], json_path: Path | None, known: Path | None) -> Self:
        """Parse the options and check that every path can be written.

        Raises:
            SentinelError: for an unknown kind of report, and for a path that is named twice or cannot be written.
        """
        outputs = cls()
        for text in reports:
            kind, _, path = text.partition("=")
            if kind not in (*FORMATS, "issue", "repro") or not path:
                kinds = ", ".join(f"{name}=FILE" for name in FORMATS)
                raise SentinelError(f"--report is {text!r}, expected {kinds}, issue=FOLDER or repro=FOLDER")
            if kind in ("issue", "repro"):
                folders = outputs.issues if kind == "issue" else outputs.repros
                folders.append(folder(Path(path), f"--report {kind}"))
            else:
                outputs.files.append((kind, writable(Path(path), f"--report {kind}")))
        outputs.json_path = json_path if json_path in (None, STDOUT) else writable(json_path, "--json")
        outputs.known = writable(known, "--known") if known else None
        files = (*(path for _, path in outputs.files), outputs.json_path, outputs.known)
        places = [p.resolve() for p in (*outputs.issues, *files, *outputs.repros) if p]
        twice = next((p for p in places if places.count(p) > 1), None)
        if twice:
            raise SentinelError(
                f"{twice} is named twice, and one output would overwrite the other: name different paths"
            )
        return outputs

    def add(self, target: TargetSpec, results: Results, version: str) -> None:
        """Add the results of one target; ``version`` is empty if it is unknown."""
        needs = target.framework.installation(target.version)
        self.results.append(results)
        self.shown += [(needs, f) for f in results.findings]
        self.audited += [knowledge.AuditedFinding(f.signature, f.level, f.also, version) for f in results.findings]

    def write(self) -> None:
        """Write all requested outputs."""
        for place in (*self.issues, *self.repros):
            place.mkdir(parents=True, exist_ok=True)
        for name, (needs, f) in zip(self._names(), self.shown, strict=True):
            self._write_finding(name, needs, f)
        for kind, path in self.files:
            put(path, FORMATS[kind](self.results))
        if self.json_path:
            objects = [as_json(results) for results in self.results]
            text = json.dumps(objects[0] if len(objects) == 1 else objects, indent=1)
            if self.json_path == STDOUT:
                sys.stdout.write(text + "\n")
            else:
                put(self.json_path, text)
        if self.known:
            put(self.known, knowledge.updated_text(self.accepted, self.audited))

    def _write_finding(self, name: str, needs: Installation, f: Finding) -> None:
        """Write the files of one finding: issue text, script, evidence and test."""
        code, test = repro.script(f, needs), pytest_file.as_pytest(f, needs)
        test_file = f"test_{re.sub(r'[^A-Za-z0-9]+', '_', name)}.py"
        attachment = (test_file, test) if test else (f"{name}.py", code)
        for place in self.issues:
            text, attached = issue.as_issue(f, *attachment)
            put(place / f"{name}.md", text)
            if attached:
                put(place / attachment[0], attachment[1])
        for place in self.repros:
            put(place / f"{name}.py", code)
            put(place / f"{name}.json", json.dumps(dict(f.evidence), indent=1))
            if test:
                put(place / test_file, test)

    def _names(self) -> list[str]:
        """A file name for each finding, with the shortest form of its boundary that no other finding has."""
        forms = [[_name(f.law, place, f.setting) for place in _forms(f.boundary)] for _, f in self.shown]
        uses = Counter(name for names in forms for name in set(names))
        names = [next((name for name in names if uses[name] == 1), names[-1]) for names in forms]
        count = Counter[str]()
        for number, name in enumerate(names):
            count[name] += 1
            names[number] = name if count[name] == 1 else f"{name}-{count[name]}"
        return names


def _forms(boundary: str) -> tuple[str, str, str]:
    """The name of the last function, each step with its class or module, and the whole path."""
    steps = [".".join(step.split(".")[-2:]) for step in boundary.split(" -> ")]
    return boundary.rpartition(".")[2], "-".join(steps), boundary.replace(" -> ", "-")


def _name(law: str, place: str, setting: str) -> str:
    """A file name; its parts are shortened, since a file name has at most 255 bytes."""
    parts = (law, place.encode()[-110:].decode(errors="ignore"), setting.encode()[:80].decode(errors="ignore"))
    return "-".join(parts).replace("/", "-")
