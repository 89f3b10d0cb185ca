"""Write ``certificate.json`` of a run: the verdicts of an audit of the trainer with its recipe, before training."""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

import rl_sentinel
from rl_sentinel.adapters.own_trainer.advantages import BUILD_BATCH
from rl_sentinel.audit.findings import Audit, Finding, findings
from rl_sentinel.audit.source.cache import digest_of
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli.output_paths import put
from rl_sentinel.cli.progress import fetch, run_audit
from rl_sentinel.cli.recipe_audit import TRAINER, own_functions, request_fields
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.laws.differs_from_reference import LAW as FORMULA
from rl_sentinel.laws.masking_differs_from_removal import LAW as REMOVAL
from rl_sentinel.report import text
from rl_sentinel.report.finding_block import sentence
from rl_sentinel.report.formatting import counted
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.run.fingerprint import fingerprint

#: The name of the file in a run's folder.
FILE = "certificate.json"

#: Random cases per pair: with these an audit of two boundaries takes about ten seconds on one core.
BUDGET = 8

SEED = 0

#: Why a function of the user's own may have no formula.
_WHY_NOT = (
    "CLAIMS state no algorithm for it (write a dict for each function if its file has several), or the recipe changes "
    "rewards before or advantages after it (docs/train.md)"
)

#: What to try if a function is compared with a formula that is meant for another function of its file.
_SHARED = (
    "CLAIMS state one algorithm for the estimator and the loss of one file: if it is meant for one of them, write a "
    "dict for each function, by its name (docs/train.md)"
)

#: The command that lists everything, since ``train`` writes no report.
_HINTS = text.Hints(every=f"`rl-sentinel audit {TRAINER} --recipe FILE --json PATH`")


@dataclass(frozen=True, slots=True)
class Certifier:
    """Audits one recipe and writes its certificate; ``say`` prints a line."""

    recipe: Recipe
    say: Callable[[str], None]

    def certify(self, folder: Path, selection: Selection) -> None:
        """Audit the recipe and write the certificate, unless the folder has one of the same identity without a fault.

        Raises:
            typer.Exit: with status 1, after the report, if the signal path that the recipe composes has a fault.
            SentinelError: if no law could be checked, or the certificate cannot be written.
        """
        identity = _identity(self.recipe)
        if (stored := _read_certificate(folder / FILE)) is not None and _covers(stored, identity):
            self.say(f"{summary(stored)}, as certified before")
            return
        fields = {**request_fields(self.recipe, getattr(selection.environment, "parts", ())), "jobs": 1}
        target, job, _ = fetch(parse_target(TRAINER), sys.executable, {**fields, "seed": SEED, "budget": BUDGET})
        start = time.monotonic()
        audit = run_audit(target, job, sys.executable)
        all_findings = findings(audit, [], "")
        _require_verdicts(audit)
        rejects = self.recipe.rollout.unended == "reject" or bool(selection.choices.rejections)
        not_checked = _not_checked(audit, rejects=rejects)
        certificate = _certificate(identity, audit, all_findings, not_checked)
        put(folder / FILE, json.dumps(certificate, indent=1) + "\n")
        faults = [f for f in all_findings if f.level == "fault"]
        for finding in all_findings:
            if finding.level != "fault":
                self.say(f"{finding.level}: {finding.law} {sentence(finding.evidence)}")
        for law, reason in not_checked.items():
            self.say(f"not checked: {law} ({reason})")
        for function in _not_compared(audit):
            if ":" in getattr(self.recipe, function).name or self.recipe.path:
                self.say(f"{function} is not compared with a formula: {_WHY_NOT}")
        if not faults:
            self.say(summary(certificate))
            return
        console = Console(highlight=False, soft_wrap=True, emoji=False)
        text.show(console, TRAINER, audit, faults, time.monotonic() - start, quiet=True, hints=_HINTS)
        if any(fault.law == FORMULA.code for fault in faults) and _share_claims(self.recipe, selection):
            console.print(f"\n{_SHARED}")
        console.print(
            "\nnot trained: the signal path that the recipe composes has a fault; --uncertified trains anyway"
        )
        raise typer.Exit(1)

    def complete(self, folder: Path, steps: int) -> None:
        """At the end of a run, add the number of steps, the digest of its metrics, and whether the code is unchanged.

        Files of the user's functions may have been edited after the run imported them.
        """
        stored = _read_certificate(folder / FILE)
        if stored is None:
            return
        changed = not _covers(stored, _identity(self.recipe))
        if changed:
            self.say("code has changed during the run; the certificate is for the earlier files")
        digest = hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest()
        end = {"steps": steps, "metrics_sha256": digest, "files_unchanged": not changed}
        put(folder / FILE, json.dumps({**stored, "end": end}, indent=1) + "\n")

    def withdraw(self, folder: Path, _selection: Selection) -> None:
        """Remove the folder's certificate if it does not cover this recipe."""
        stored = _read_certificate(folder / FILE)
        if stored is not None and not _covers(stored, _identity(self.recipe)):
            (folder / FILE).unlink()


def summary(certificate: Mapping[str, Any]) -> str:
    """A certificate in one line.

    Example:
        >>> from rl_sentinel.cli.certificate import summary
        >>> summary({"pairs": 3, "verdicts": {"holds": 2, "broken": 0, "not_applicable": 1, "errored": 0}})
        'certificate: 3 pairs of law and boundary: 2 hold, 0 broken, 1 not applicable, 0 errored'
    """
    parts = [f"{number} {name.replace('_', ' ')}" for name, number in certificate["verdicts"].items()]
    pairs = counted(certificate["pairs"], "pair")
    return f"certificate: {pairs} of law and boundary: {', '.join(parts)}".replace(" holds,", " hold,")


def read_summary(folder: Path) -> str:
    """The certificate of a run's folder in one line; empty if it has no certificate."""
    stored = _read_certificate(folder / FILE)
    return "" if stored is None else summary(stored)


def _identity(recipe: Recipe) -> dict[str, Any]:
    """The versions, digests, seed and number of random cases on which the verdicts depend."""
    return {
        "rl_sentinel": rl_sentinel.__version__,
        "code": digest_of(Path(rl_sentinel.__file__).parent),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "recipe": fingerprint(recipe),
        "functions": own_functions(recipe),
        "seed": SEED,
        "budget": BUDGET,
    }


def _not_checked(audit: Audit, *, rejects: bool) -> dict[str, str]:
    """Each law that could not be checked at some boundary, and why.

    If the recipe rejects responses (``rejects``), this includes the law that leaves one out of the batch: it does not
    apply to an estimator that groups a fixed number of rows.
    """
    untried = [v for v in audit.verdicts if rejects and v.law == REMOVAL.code and v.outcome == "not-applicable"]
    errored = [v for v in audit.verdicts if v.outcome == "errored"]
    return {v.law: f"{v.boundary}: {v.reason}" for v in (*untried, *errored)}


def _not_compared(audit: Audit) -> list[str]:
    """The functions of the recipe that were not compared with the formula of an algorithm: estimator, loss."""
    silent = {v.boundary for v in audit.verdicts if v.law == FORMULA.code and v.outcome == "not-applicable"}
    return ["estimator" if path == BUILD_BATCH else "loss" for path in sorted(silent, reverse=True)]


def _share_claims(recipe: Recipe, selection: Selection) -> bool:
    """Whether an estimator and a loss of one file of the user's own have the same claims, which state an algorithm."""
    files = {name.rpartition(":")[0] for name in (recipe.estimator.name, recipe.loss.name)}
    of_estimator, of_loss = selection.claims
    return len(files) == 1 and files != {""} and of_estimator == of_loss and "algorithm" in of_loss


def _certificate(
    identity: Mapping[str, Any], audit: Audit, all_findings: Sequence[Finding], not_checked: Mapping[str, str]
) -> dict[str, Any]:
    listed = [{"signature": f.signature, "level": f.level, "sentence": sentence(f.evidence)} for f in all_findings]
    counts = {"pairs": len(audit.verdicts), "verdicts": audit.counts}
    reasons = {"not_checked": not_checked, "not_compared": _not_compared(audit)}
    return {**identity, **counts, "findings": listed, **reasons}


def _covers(stored: Mapping[str, Any], identity: Mapping[str, Any]) -> bool:
    """Whether a certificate has these digests and no fault."""
    same = all(stored.get(key) == value for key, value in identity.items())
    return same and all(f["level"] != "fault" for f in stored["findings"])


def _require_verdicts(audit: Audit) -> None:
    """Require that at least one law holds or is broken."""
    if audit.counts["holds"] + audit.counts["broken"]:
        return
    first = next((v for v in audit.verdicts if v.outcome == "errored"), None)
    if first is None:
        raise SentinelError("recipe cannot be certified (no law applies to its signal path): train with --uncertified")
    raise SentinelError(
        f"recipe cannot be certified: no law could be checked, first {first.law} at {first.boundary} ({first.reason}): "
        "fix the cause, or train with --uncertified"
    )


def _read_certificate(path: Path) -> dict[str, Any] | None:
    """Read a certificate; None if the file does not exist or is damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        summary(stored)
        return stored if all(f["level"] for f in stored["findings"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
