"""``audit``: every wrong input is one line that says what is wrong and how to fix it, before anything runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit_fixtures import MODULE, checkout
from command_line import error_line, run_cli
from rl_sentinel.audit.source import fetch as origin
from rl_sentinel.audit.source.cache import cached_folder, digest_of

GRPO = ("--boundary", "*compute_grpo_outcome_advantage", "--law", "msk001")
NAME_ONE = "name an existing file, or write one with --known FILE --known-update"


@pytest.fixture
def tree(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkout with one leaking estimator, as a target."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    return f"verl@{checkout(tmp_path / 'tree')}"


def test_target_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = "areal, rl_sentinel, rl_sentinel.train, skyrl, slime, trl, verl"
    known = f"{every} with ==VERSION or @PATH, or pkg.module:function or FILE.py:function with --stage"
    assert error_line(capsys, "audit", "nonesuch==1.0") == (
        f"target is 'nonesuch==1.0', expected one of {known}: 'nonesuch' is not a known framework"
    )
    assert error_line(capsys, "audit", "verl==0.9.1..") == (
        "target is 'verl==0.9.1..', expected a release number, as in verl==1.2.3"
    )
    assert (
        error_line(capsys, "audit", "verl@/nonesuch")
        == "checkout is '/nonesuch', expected a folder that contains verl/"
    )
    assert error_line(capsys, "audit", f"verl@{tmp_path}") == (
        f"checkout[{tmp_path}] has no verl/, expected a checkout of verl"
    )


def test_law_and_seed_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--law", "--ignore"):
        assert error_line(capsys, "audit", "verl", option, "msk01") == (
            "law is 'msk01', expected a code or name that `rl-sentinel laws` lists: "
            "the nearest is MSK001 dead-row-shifts-signal"
        )
    assert error_line(capsys, "audit", "verl", "--seed", "-1").startswith("Invalid value for '--seed': ")


def test_all_laws_that_are_named_are_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", "verl", "--law", "msk001", "--ignore", "msk001") == (
        "--ignore leaves out every law of --law (MSK001): drop one of the two options"
    )


@pytest.mark.slow
def test_thorough_is_a_number_of_cases(tree: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", "verl", "--thorough", "--budget", "8") == (
        "--thorough means --budget 24, but --budget is 8: drop one of the two options"
    )
    tried = []
    for options in ((), ("--thorough",), ("--budget", "24")):
        run_cli(capsys, "audit", tree, *GRPO[:2], "--law", "PRM001", "--json", str(tmp_path / "report.json"), *options)
        report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        tried.append(sum(v["tried"] for v in report["verdicts"]))
    assert tried[0] < tried[1] == tried[2]


@pytest.mark.slow
def test_release_that_does_not_import_says_why_its_status_is_2(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    folder = checkout(tmp_path / "tree")
    place = folder / "verl/trainer/ppo/core_algos.py"
    place.write_text(place.read_text(encoding="utf-8") + "\nraise RuntimeError('no luck')\n", encoding="utf-8")
    status, out, _ = run_cli(capsys, "audit", f"verl@{folder}", "--boundary", "*grpo*")
    assert status == 2
    assert "no luck" in out
    assert out.splitlines()[-1] == "1 pair errored (see above); exit status 2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--json", "/nonesuch/x"),
            "--json is '/nonesuch/x', expected a file in an existing folder: create the folder",
        ),
        (
            ("--report", "html=/proc/x"),
            "--report html is '/proc/x', which cannot be written (No such file or directory): name another path",
        ),
        (
            ("--report", "repro=/dev/null/x"),
            "--report repro is '/dev/null/x', expected a folder, but /dev/null is a file: name another path",
        ),
        (
            ("--known", "/nonesuch/k", "--known-update"),
            "--known is '/nonesuch/k', expected a file in an existing folder: create the folder",
        ),
        (("--known-update",), "--known-update needs --known: name the file with --known FILE"),
        (
            ("--known", "/nonesuch/k"),
            f"file of known findings /nonesuch/k cannot be read (No such file or directory): {NAME_ONE}",
        ),
    ],
)
def test_place_is_looked_at_before_the_audit(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_line(capsys, "audit", "verl", *options) == words


def test_cache_that_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    place = tmp_path / "file"
    place.write_text("", encoding="utf-8")
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(place))
    assert error_line(capsys, "audit", "verl==1.0") == (
        f"cache[{place}] cannot be written (Not a directory): set RL_SENTINEL_CACHE to a writable folder"
    )


def test_cache_entry_that_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    place = cached_folder("releases", "verl-1.0", lambda to: (to / "a.py").touch())
    sealed = digest_of(place)
    (place / "a.py").write_text("1", encoding="utf-8")
    found = digest_of(place)
    assert error_line(capsys, "audit", "verl==1.0") == (
        f"cache[{place}] is damaged (sha256 {found[:12]}, expected {sealed[:12]}): "
        "delete this folder, and run the command again"
    )
    assert (place / "a.py").read_text(encoding="utf-8") == "1"


def test_release_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    said = "ERROR: Could not find a version that satisfies the requirement verl==9.9 (from versions: 0.8.0, 0.9.1)"
    monkeypatch.setattr(origin, "pip", lambda *a: subprocess.CompletedProcess(a, 1, "", said))
    assert error_line(capsys, "audit", "verl==9.9") == (
        "verl==9.9 has no wheel on the package index, expected one of 0.8.0, 0.9.1"
    )


def test_release_for_another_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path))
    said = (
        "ERROR: Ignored the following versions that require a different python version: 1.0.3 Requires-Python <3.10; "
        "1.0.4 Requires-Python <3.10,>=3.9\n"
        "ERROR: Could not find a version that satisfies the requirement areal==1.0.4 (from versions: none)"
    )
    monkeypatch.setattr(origin, "pip", lambda *a: subprocess.CompletedProcess(a, 1, "", said))
    assert error_line(capsys, "audit", "areal==1.0.4").startswith(
        f"areal==1.0.4 needs Python <3.10,>=3.9, and this is Python 3.{sys.version_info.minor}: use such a Python"
    )


@pytest.mark.slow
def test_no_network_and_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    assert error_line(capsys, "audit", "verl==0.9.1") == (
        "verl==0.9.1 is not in the cache and the package index cannot be reached: "
        "connect to the index, or name a checkout (verl@PATH)"
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert error_line(capsys, "audit", "verl==0.9.1") == (
        "verl==0.9.1 is not in the cache, and pip's package index has no verl: "
        "connect to the index, or name a checkout (verl@PATH)"
    )
    line = error_line(capsys, "audit", f"verl@{checkout(tmp_path / 'tree')}")
    assert line.startswith("packages that verl imports (PyYAML==")
    assert line.endswith("): fix this, or connect once to an index of these packages")
    assert list((tmp_path / "cache").rglob("*.py")) == []


@pytest.mark.slow
def test_interpreter_that_is_none(tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", tree, "--python", "/bin/true") == (
        "--python is '/bin/true', expected a Python interpreter: it did not run Python code"
    )
    assert error_line(capsys, "audit", tree, "--python", "/nonesuch") == (
        "--python is '/nonesuch', expected an interpreter (No such file or directory)"
    )


def test_known_file_is_left_alone_when_it_is_malformed(
    tree: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known.toml"
    for text, words in (
        ('[[finding]]\nsignatur = "x"\n', "[finding.0.signatur] is unknown, the nearest is 'signature'"),
        ("a = " + "[" * 100_000, " is malformed (maximum recursion depth exceeded"),
    ):
        known.write_text(text, encoding="utf-8")
        assert error_line(capsys, "audit", tree, "--known", str(known)).startswith(
            f"file of known findings {known}{words}"
        )
        assert known.read_text(encoding="utf-8") == text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.9.1", "  known     rejected rows stay in the group's mean and deviation;"),
        ("0.99", "  new here  known of releases >=0.2,<=0.9.1, and this is 0.99: rejected rows"),
        ("", "  new here  known of releases >=0.2,<=0.9.1, and this target states no release:"),
    ],
)
def test_known_entry_is_held_to_the_version_that_a_checkout_states(
    tree: str, version: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(tree.partition("@")[2]) / "verl" / "version"
    place.mkdir()
    (place / "version").write_text(version, encoding="utf-8")
    status, said, _ = run_cli(capsys, "audit", tree, *GRPO, "--verbose")
    assert status == 1
    assert [line for line in said.splitlines() if line.startswith(words)], said


@pytest.mark.slow
def test_nothing_to_audit(tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", tree, "--boundary", "nonesuch") == (
        f"no law and boundary of {tree} match --boundary: "
        "`rl-sentinel boundaries TARGET` and `rl-sentinel laws` list the names"
    )


@pytest.mark.slow
def test_two_targets_in_one_report_replay_as_one(tree: str, tmp_path: Path, capsys: Any) -> None:
    other, file = checkout(tmp_path / "other"), tmp_path / "out.json"
    status, said, _ = run_cli(capsys, "audit", tree, f"verl@{other}", *GRPO, "--json", str(file))
    assert (status, len(json.loads(file.read_text(encoding="utf-8")))) == (1, 2), said
    mended = MODULE.replace("for i in index.tolist()])", "for i in index.tolist()]) & response_mask.any(-1)")
    (other / "verl" / "trainer" / "ppo" / "core_algos.py").write_text(mended, encoding="utf-8")
    status, said, _ = run_cli(capsys, "replay", str(file))
    name = "verl:MSK001:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage:default"
    one, two = said.splitlines()
    assert (status, one) == (1, f"reproduced: {name}")
    assert two.startswith(f"fixed: {name} (its code differs from the audited code: sha256 ")


@pytest.mark.slow
def test_every_target_is_fetched_before_one_runs(tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = f"verl@{tree.partition('@')[2]}/nowhere"
    line = error_line(capsys, "audit", tree, other, *GRPO)
    assert "nowhere" in line
    assert run_cli(capsys, "audit", tree, other, *GRPO)[1] == ""


@pytest.mark.slow
def test_function_that_cannot_be_bound(capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "audit", "json:dumps", "--stage", "advantage")
    assert line.startswith("target json:dumps cannot be audited: dumps has the parameter 'obj' of unknown name: bind")
    assert line.endswith(
        "(a column, COLUMN[AXES], a number, true or false, 'a text' in quotes, or in Python an object or a function "
        "of the batch; docs/own-functions.md)"
    )
    assert error_line(capsys, "audit", "json:nonesuch", "--stage", "advantage").startswith(
        "target json:nonesuch cannot be audited: json.nonesuch is absent: json has no 'nonesuch', expected one of "
    )


@pytest.mark.slow
def test_function_that_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "def one(rewards, group):\n    raise KeyError('nothing')\n"
    (tmp_path / "that_raises.py").write_text(text, encoding="utf-8")
    (tmp_path / "queue.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert error_line(capsys, "audit", "that_raises.py:one", "--stage", "advantage") == (
        "target that_raises.py:one cannot be checked: the function raised KeyError: 'nothing' at that_raises.py:2; "
        "passed rewards=reward[2], group=group[2]"
    )
    renamed = error_line(capsys, "audit", "queue:one", "--stage", "advantage")
    assert renamed.startswith(f"target is 'queue:one': {tmp_path}/queue.py has the same name as a module that is imp")
    assert renamed.endswith("queue.py); rename the file")


def test_module_without_source(capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "audit", "math:sqrt", "--stage", "advantage")
    assert line.startswith("target is 'math:sqrt': module 'math' has no Python source (")


def test_expectation_that_is_not_there(tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", tree, "--expect", "/nonesuch.toml") == (
        "expectation file /nonesuch.toml cannot be read (No such file or directory): name an existing file"
    )


def test_revision_of_another_project_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "other").mkdir()
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for step in (("init", "-q"), (*who, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *step], cwd=tmp_path / "other", check=True)
    place = f"{tmp_path / 'other'}#HEAD"
    assert (
        error_line(capsys, "audit", f"verl@{place}") == f"checkout[{place}] has no verl/, expected a checkout of verl"
    )
    assert [p for p in (tmp_path / "cache" / "revisions").iterdir() if p.suffix != ".lock"] == []


@pytest.mark.slow
def test_function_without_a_claim_is_told_of_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_no_claim.py").write_text(
        "def one(rewards, mask): return rewards[:, None] * mask\n", encoding="utf-8"
    )
    asked = ("audit", "of_no_claim:one", "--stage", "advantage", "--law", "PUR001")
    _, said, _ = run_cli(capsys, *asked)
    assert "state one, as in --algorithm grpo (docs/claims.md)" in said
    assert "docs/claims.md" not in run_cli(capsys, *asked, "--algorithm", "rloo")[1]
