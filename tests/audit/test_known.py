"""Known findings: read, checked, matched with releases, written."""

from pathlib import Path

import pytest

from rl_sentinel.audit import known
from rl_sentinel.audit.known import Known
from rl_sentinel.core.errors import SentinelError


def _entry(releases: str = "", signature: str = "verl:A:b:c") -> Known:
    return Known(signature, "", "", releases, "", accepted=False)


def test_written_file_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    odd = 'verl:A:b:"x\\y"'
    seen = [(odd, "fault", ('x ["y"]',)), ("a:b:c:d", "hazard", ())]
    file.write_text(known.expectation_text(seen, {"not_applicable": 3, "errored": 0}, ["KeyError: 'a'"]))
    back = known.read(file)
    assert [(e.signature, e.level, e.also) for e in back.finding] == [
        ("a:b:c:d", "hazard", []),
        (odd, "fault", ['x ["y"]']),
    ]
    assert (back.not_applicable, back.errored, back.refused) == (3, 0, ["KeyError: 'a'"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[finding]]\nreason = 'x'\n", "[finding.0.signature] is missing, expected a value in each [[finding]]"),
        ("[[finding]]\nsignature = 1\n", "[finding.0.signature] is 1, expected a valid string"),
        (
            "[[finding]]\nsignature = 'a'\nlevel = 'bad'\n",
            "[finding.0.level] is 'bad', expected '', 'fault', 'contested' or 'hazard'",
        ),
        ("[[finding]]\nsignature = 'a'\nlinks = ''\n", "[finding.0.links] is unknown, the nearest is 'link'"),
        (
            "[[finding]]\nsignature = 'a'\nreleases = '=>1'\n",
            "[finding.0.releases] is '=>1', expected a version specifier",
        ),
        (
            "[[finding]]\nsignature = 'a:*'\n",
            (
                "[finding.0.signature]: 'a:*' contains *, expected the whole signature of one finding: * is not "
                "a wildcard "
                "here"
            ),
        ),
        ("findings = 1\n", "[findings] is unknown, the nearest is 'finding'"),
        ("not toml", " is malformed ("),
    ],
)
def test_malformed_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "k.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SentinelError) as error:
        known.read(file)
    assert str(error.value).startswith(f"file of known findings {file}{words}")


@pytest.mark.parametrize(
    ("releases", "version", "covers"),
    [
        (">=1,<2", "1.5", True),
        (">=1,<2", "2.0", False),
        (">=1,<2", "1.5.dev0", True),
        ("", "2.0", True),
        ("", "", True),
        (">=1", "", True),
        (">=1,!=2", "no number", True),
        (">=1,<2", "", False),
        ("<=2", "no number", False),
        ("==1.0", "", False),
        ("~=1.0", "", False),
    ],
)
def test_entry_covers_its_releases(releases: str, version: str, covers: object) -> None:
    assert _entry(releases).covers(version) is covers


@pytest.mark.parametrize(
    ("releases", "version", "counts"),
    [
        (">=1,<2", "1.5", True),
        ("==1.5", "1.5", True),
        ("<2", "1.5", True),
        (">=1,<2", "2.0", False),
        (">=1", "1.5", False),
        ("", "1.5", False),
        ("", "", False),
        (">=1,<2", "", False),
    ],
)
def test_level_counts_for_releases_that_are_named(releases: str, version: str, counts: object) -> None:
    """A range without an end includes releases that nobody has audited."""
    assert Known("s", "", "", releases, "hazard", accepted=False).sets_level(version) is counts


def test_entry_without_a_level_sets_none() -> None:
    assert not _entry("==1.0").sets_level("1.0")


def test_places_of_a_finding() -> None:
    """Any place, where the entry lists none; otherwise exactly those that it lists."""
    entry = Known("s", "", "", "", "", accepted=False, also=("m.f [*]", "A at m.g [a]"))
    assert [entry.includes(p) for p in ("m.f [*]", "A at m.g [a]", "m.f [x]", "m.g [a]")] == [True, True, False, False]
    assert _entry().includes("m.g [a]")
    assert not Known("s", "", "", "", "", accepted=False, also=()).includes("m.f [x]")


def test_stale_entries_are_known_and_not_found() -> None:
    names = ("verl:B:m.b:c", "areal:A:m.b:c", "verl:C:m.b:c", "verl:A:n.b:c")
    entries = [_entry(">=1", "verl:A:m.b:c"), _entry("<1", names[0]), *(_entry("", name) for name in names[1:])]
    assert known.stale(entries, ["verl:C:m.b:c"], ["m.b"], "verl", "1.0") == ["verl:A:m.b:c"]
    assert known.stale(entries, [], ["m.b"], "verl", "") == []
    assert known.stale(entries, [], [], "verl", "1.0") == [], "nothing could be called"


def test_shipped_entries_annotate_and_accept_nothing() -> None:
    shipped = known.shipped("verl")
    assert shipped
    assert not any(k.accepted for k in shipped)
    assert known.shipped("nonesuch") == []


def test_update_keeps_reasons_and_widens_the_range(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    one, other = "verl:A:b:c", "verl:B:b:c"
    first = known.updated_text(
        known.KnownFile(),
        [known.AuditedFinding(one, "fault", (), "0.8.0"), known.AuditedFinding(other, "fault", (), "")],
    )
    file.write_text(
        first.replace('level = "fault"', 'level = "fault"\nreason = "ours,\\nof two lines"\nfix = "ours too"', 1)
    )
    assert [(e.releases, e.reason) for e in known.read(file).finding] == [("==0.8.0", "ours,\nof two lines"), ("", "")]
    file.write_text(known.updated_text(known.read(file), [known.AuditedFinding(one, "contested", ("z", "y"), "0.9.1")]))
    assert [e.model_dump() for e in known.read(file).finding] == [
        {
            "signature": one,
            "reason": "ours,\nof two lines",
            "link": "",
            "fix": "ours too",
            "releases": ">=0.8.0,<=0.9.1",
            "level": "contested",
            "also": ["y", "z"],
        },
        {"signature": other, "reason": "", "link": "", "fix": "", "releases": "", "level": "fault", "also": []},
    ]


@pytest.mark.parametrize(
    ("old", "version", "new"),
    [
        ("", "1.0", "==1.0"),
        ("==1.0", "1.0", "==1.0"),
        ("==1.0", "0.9", ">=0.9,<=1.0"),
        (">=0.5,<=1.0", "0.7", ">=0.5,<=1.0"),
        (">=0.5,<=1.0", "1.1", ">=0.5,<=1.1"),
        (">=0.5", "1.1", ">=0.5"),
        ("==1.0", "", "==1.0"),
        ("", "no number", ""),
    ],
)
def test_range_after_an_update(tmp_path: Path, old: str, version: str, new: str) -> None:
    before = known.KnownFile(finding=[known.Entry(signature="verl:A:b:c", releases=old)])
    file = tmp_path / "k.toml"
    file.write_text(known.updated_text(before, [known.AuditedFinding("verl:A:b:c", "fault", (), version)]))
    assert known.read(file).finding[0].releases == new


def test_a_path_with_a_null_byte_is_refused() -> None:
    with pytest.raises(SentinelError, match=r"^file of known findings is .*, expected a path"):
        known.read(Path("known\0.toml"))
