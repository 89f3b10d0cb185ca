"""A run is certified before its first step: reuse, refusal, and what the file says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from command_line import run_cli
from rl_sentinel.adapters.own_trainer.advantages import BUILD_BATCH
from rl_sentinel.audit.findings import Audit
from rl_sentinel.cli import certificate
from rl_sentinel.cli.certificate import FILE, Certifier, read_summary
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report import text
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import select_components
from training import COMPONENTS, TOML, component_name, recipe

OWN = """
import torch
CLAIMS = {"algorithm": "grpo", "scope": "group", "baseline": "relative", "standardized": "no"}

def advantages(reward, *, group, live):
    same = (group.unsqueeze(1) == group) & live
    mean = torch.where(same, reward, 0.0).sum(dim=1) / same.sum(dim=1).clamp(min=1)
    return torch.where(live, SIGN(reward - mean), 0.0)
"""
SHARED = """
import torch
from rl_sentinel.signal.reduce import aggregate
CLAIMS = {claims}

def advantages(reward):
    return reward * 1.0

def loss(logprob, old_logprob, advantage, *, mask, aggregation, clip_low=0.2, clip_high=0.2):
    ratio = torch.where(mask, logprob - old_logprob, 0.0).exp()
    gain = torch.where(mask, advantage, 0.0)
    return aggregate(-torch.maximum(ratio * gain, ratio.clamp(1 - clip_low, 1 + clip_high) * gain), mask=mask,
                     aggregation=aggregation)
"""
HOLDS = Verdict(law="AAA001", boundary="b", setting="recipe", outcome="holds", tried=1)
ERRORED = Verdict(law="AAA001", boundary="b", setting="recipe", outcome="errored", reason="it raised")
VERSIONS = ["rl_sentinel", "code", "torch", "python", "recipe", "functions", "seed", "budget"]


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """Verdicts that each audit gives; it appends one more, which holds, for each audit that ran."""
    verdicts = [HOLDS]

    def run_audit(*_: object) -> Audit:
        seen = Audit(verdicts=list(verdicts), boundaries=1, pairs=len(verdicts))
        verdicts.append(HOLDS)
        return seen

    monkeypatch.setattr(certificate, "run_audit", run_audit)
    return verdicts


def _certified(folder: Path, wanted: Recipe) -> list[str]:
    """The lines that certifying a recipe prints."""
    said: list[str] = []
    Certifier(wanted, said.append).certify(folder, select_components(wanted))
    return said


def test_law_that_could_not_be_checked_is_named(tmp_path: Path, audits: list[Verdict]) -> None:
    audits.append(replace(ERRORED, law="AAA002"))
    said = _certified(tmp_path, recipe())
    assert said[0] == "not checked: AAA002 (b: it raised)"
    assert json.loads((tmp_path / FILE).read_text())["not_checked"] == {"AAA002": "b: it raised"}


@pytest.mark.parametrize("unended", ["train", "reject"])
def test_rejection_that_could_not_be_tried_is_named(tmp_path: Path, audits: list[Verdict], unended: str) -> None:
    reason = "a prompt does not have 4 responses"
    audits.append(replace(ERRORED, law="MSK006", boundary=BUILD_BATCH, outcome="not-applicable", reason=reason))
    said = _certified(tmp_path, recipe(rollout={"unended": unended}))
    expected = {} if unended == "train" else {"MSK006": f"{BUILD_BATCH}: {reason}"}
    assert json.loads((tmp_path / FILE).read_text())["not_checked"] == expected
    assert ("not checked: MSK006" in said[0]) is bool(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "claims",
    ['{"algorithm": "reinforce"}', '{"advantages": {"algorithm": "reinforce"}, "loss": {"algorithm": "ppo"}}'],
)
def test_finding_says_if_two_functions_share_an_algorithm(
    tmp_path: Path, claims: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PPO loss that takes the larger value; the estimator is right."""
    (tmp_path / "own.py").write_text(SHARED.replace("{claims}", claims), encoding="utf-8")
    estimator, loss = ({"name": f"{tmp_path / 'own.py'}:{name}"} for name in ("advantages", "loss"))
    wanted = recipe(estimator=estimator, loss={**loss, "aggregation": "token-mean"})
    with pytest.raises(typer.Exit):
        _certified(tmp_path, wanted)
    assert ("write a dict for each function" in capsys.readouterr().out.replace("\n", " ")) is ("ppo" not in claims)


def test_own_function_without_a_formula_is_named(tmp_path: Path, audits: list[Verdict]) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("SIGN", ""), encoding="utf-8")
    for path in (BUILD_BATCH, "the loss"):
        reason = "the boundary claims no algorithm whose formula is known"
        audits.append(replace(ERRORED, law="REF001", boundary=path, outcome="not-applicable", reason=reason))
    said = _certified(tmp_path, recipe(estimator={"name": f"{tmp_path / 'own.py'}:advantages"}))
    (line,) = [line for line in said if "formula" in line]
    assert line.startswith("estimator is not compared with a formula: CLAIMS state no algorithm for it (write a dict ")
    assert json.loads((tmp_path / FILE).read_text())["not_compared"] == ["loss", "estimator"]


def test_certificate_has_versions_digests_and_verdicts(tmp_path: Path, audits: list[Verdict]) -> None:
    assert _certified(tmp_path, recipe()) == [read_summary(tmp_path)]
    written = json.loads((tmp_path / FILE).read_text())
    assert list(written) == [*VERSIONS, "pairs", "verdicts", "findings", "not_checked", "not_compared"]
    assert (written["pairs"], written["verdicts"]["holds"], written["findings"], len(audits)) == (1, 1, [], 2)


def test_unchanged_recipe_is_not_audited_again(tmp_path: Path, audits: list[Verdict]) -> None:
    wanted = recipe()
    (first,) = _certified(tmp_path, wanted)
    assert _certified(tmp_path, recipe(steps=9, out="elsewhere")) == [f"{first}, as certified before"]
    assert len(audits) == 2
    _certified(tmp_path, recipe(loss={"clip_low": 0.1, "clip_high": 0.2, "name": "ppo", "aggregation": "token-mean"}))
    assert len(audits) == 3


def test_changed_own_function_is_audited_again(tmp_path: Path, audits: list[Verdict]) -> None:
    own = tmp_path / "own.py"
    wanted = recipe(estimator={"name": f"{own}:advantages"})
    for number, source in enumerate((OWN, OWN, f"{OWN}# changed\n")):
        own.write_text(source.replace("SIGN", ""), encoding="utf-8")
        _certified(tmp_path, wanted)
        assert len(audits) == (2, 2, 3)[number]


def test_finished_run_has_its_metrics_and_its_functions_in_the_certificate(
    tmp_path: Path, audits: list[Verdict]
) -> None:
    """A function that is edited while the run trains is not the one that was certified."""
    own, wanted = tmp_path / "own.py", recipe(estimator={"name": f"{tmp_path / 'own.py'}:advantages"})
    own.write_text(OWN.replace("SIGN", ""), encoding="utf-8")
    (tmp_path / "metrics.jsonl").write_bytes(b"abc")
    said: list[str] = []
    certifier = Certifier(wanted, said.append)
    certifier.complete(tmp_path, 2)  # a run without a certificate gets none
    assert not (tmp_path / FILE).exists()
    certifier.certify(tmp_path, select_components(wanted))
    certifier.complete(tmp_path, 2)
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert json.loads((tmp_path / FILE).read_text())["end"] == {
        "steps": 2,
        "metrics_sha256": digest,
        "files_unchanged": True,
    }
    assert _certified(tmp_path, wanted)[0].endswith("as certified before")
    own.write_text(OWN.replace("SIGN", "-"), encoding="utf-8")
    certifier.complete(tmp_path, 2)
    assert json.loads((tmp_path / FILE).read_text())["end"]["files_unchanged"] is False
    assert said[-1].startswith("code has changed during the run")
    assert len(audits) == 2


@pytest.mark.parametrize("damaged", ["", "[]", '{"pairs": 1}', '{"pairs": "a", "verdicts": {}, "findings": [1]}'])
def test_damaged_certificate_is_written_anew(tmp_path: Path, audits: list[Verdict], damaged: str) -> None:
    (tmp_path / FILE).write_text(damaged)
    assert read_summary(tmp_path) == ""
    _certified(tmp_path, recipe())
    assert len(audits) == 2
    assert read_summary(tmp_path) != ""


@pytest.mark.usefixtures("audits")
def test_certificate_of_another_recipe_is_withdrawn(tmp_path: Path) -> None:
    """A run without an audit leaves no certificate that does not cover it."""
    _certified(tmp_path, recipe())
    for wanted, stays in ((recipe(), True), (recipe(seed=1), False)):
        Certifier(wanted, print).withdraw(tmp_path, select_components(wanted))
        assert (tmp_path / FILE).exists() == stays


def test_recipe_that_no_law_could_judge_is_one_line(tmp_path: Path, audits: list[Verdict]) -> None:
    audits[:] = [ERRORED]
    with pytest.raises(SentinelError, match=r"first AAA001 at b \(it raised\): fix the cause, or train with"):
        _certified(tmp_path, recipe())
    assert not (tmp_path / FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("choice", [c for c in COMPONENTS if "loss" in c], ids=component_name)
def test_every_loss_is_sound_in_a_composition(
    tmp_path: Path, choice: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GRPO, in parts of a mini-batch and over ranks."""
    monkeypatch.setattr(certificate, "BUDGET", 1)
    _certified(tmp_path, recipe(**choice))
    verdicts = json.loads((tmp_path / FILE).read_text())["verdicts"]
    assert verdicts["holds"] > verdicts["not_applicable"]
    assert verdicts["broken"] == verdicts["errored"] == 0


@pytest.mark.slow
def test_recipe_with_a_fault_does_not_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The finding is printed, nothing is logged; with the fault fixed it trains and is certified."""
    own, place, out = tmp_path / "own.py", tmp_path / "r.toml", tmp_path / "run"
    text = TOML.format(out=out).replace("standardize = false\nepsilon = 0.0\n", "")
    place.write_text(text.replace('"grpo"', f'"{own}:advantages"'), encoding="utf-8")
    own.write_text(OWN.replace("SIGN", "-"), encoding="utf-8")
    status, output, _ = run_cli(capsys, "train", str(place))
    assert status == 1
    assert "fault RNK001" in " ".join(output.lower().replace("rnk001", "RNK001").split())
    assert output.splitlines()[-1] == (
        "not trained: the signal path that the recipe composes has a fault; --uncertified trains anyway"
    )
    assert not (out / "metrics.jsonl").exists()
    written: dict[str, Any] = json.loads((out / FILE).read_text())
    assert {f["level"] for f in written["findings"]} >= {"fault"}
    assert list(written["functions"]) == [f"estimator {own}:advantages", "environment training:Letter"]

    own.write_text(OWN.replace("SIGN", ""), encoding="utf-8")
    status, output, live = run_cli(capsys, "train", str(place))
    assert status == 0, output
    assert output.splitlines()[-2] == read_summary(out)
    assert live.splitlines()[0].startswith("certificate: ")
    status, _, live = run_cli(capsys, "train", str(place))
    assert live.splitlines()[0].endswith("as certified before")


def test_refusal_is_an_exit_status(tmp_path: Path, audits: list[Verdict], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault stops the run, a contested finding is a line."""
    shown: list[int] = []
    found = [_Finding("contested")]
    monkeypatch.setattr(certificate, "findings", lambda *_: found)
    monkeypatch.setattr(certificate, "sentence", lambda evidence: evidence["says"])
    monkeypatch.setattr(text, "show", lambda *a, **_: shown.append(len(a[3])))
    assert _certified(tmp_path, recipe())[0] == "contested: AAA001 it differs"
    found = [_Finding("contested"), _Finding("fault")]
    with pytest.raises(typer.Exit) as ended:
        _certified(tmp_path, recipe(seed=1))
    assert (ended.value.exit_code, shown, len(audits)) == (1, [1], 3)
    with pytest.raises(typer.Exit):
        _certified(tmp_path, recipe(seed=1))
    assert len(audits) == 4  # a certificate with a fault covers no run


class _Finding:
    """What a certificate reads of a finding."""

    law, signature = "AAA001", "rl_sentinel.train:AAA001:b:recipe"

    def __init__(self, level: str) -> None:
        self.level, self.evidence = level, {"says": "it differs"}
