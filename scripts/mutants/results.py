"""Outcomes of mutants on disk, so that an interrupted run continues."""

import ast
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutants.sites import Mutant
from mutants.trial import BUDGET, SEED

Result = Mapping[str, Any]


def digest(package: Path) -> str:
    """Of everything that a verdict on a mutant depends on: the package, and how it is searched."""
    total = hashlib.sha256(f"{SEED} {BUDGET}".encode())
    own = [Path(__file__).with_name(f"{name}.py") for name in ("operators", "planted", "sites", "trial")]
    folders = ("core", "formulas", "signal", "search", "laws", "adapters/library", "audit/engine", "audit/sandbox")
    for path in sorted([*own, *(p for name in folders for p in (package / name).rglob("*.py"))]):
        total.update(path.read_bytes())
    return total.hexdigest()


class Store:
    """Results by mutant, as lines of JSON; those of another state of the package are not read."""

    def __init__(self, path: Path, state: str) -> None:
        """Read the file if it exists."""
        self.path, self.state = path, state
        self.results: dict[str, Result] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            entry = json.loads(line)
            if entry["state"] == state:
                self.results[entry["key"]] = entry["result"]

    def get(self, mutant: Mutant) -> Result | None:
        """The outcome of a mutant, if it was tried in this state."""
        return self.results.get(_key(mutant))

    def put(self, mutant: Mutant, result: Result) -> None:
        """Write a result."""
        self.results[_key(mutant)] = result
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({"state": self.state, "key": _key(mutant), "name": mutant.name, "result": result}) + "\n"
            )


def _key(mutant: Mutant) -> str:
    return hashlib.sha256(f"{mutant.module}\n{ast.unparse(mutant.tree)}".encode()).hexdigest()
