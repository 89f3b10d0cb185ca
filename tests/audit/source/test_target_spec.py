"""Targets as they are typed."""

import pytest

from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.core.errors import SentinelError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verl==0.9.1", ("release", "verl", "0.9.1", "", "")),
        ("verl==0.2.0.post2", ("release", "verl", "0.2.0.post2", "", "")),
        ("verl", ("installed", "verl", "", "", "")),
        ("verl@../some/path", ("checkout", "verl", "", "../some/path", "")),
        ("verl@/a/repo#abc123~1", ("checkout", "verl", "", "/a/repo", "abc123~1")),
        ("pkg.module:function", ("function", "own", "", "", "")),
    ],
)
def test_forms(text: str, expected: tuple[str, ...]) -> None:
    found = parse_target(text)
    assert (found.form, found.framework.name, found.version, found.path, found.revision) == expected


def test_unknown_framework_names_the_known_ones() -> None:
    with pytest.raises(SentinelError, match=r"expected one of .*verl.*'nonesuch' is not a known framework"):
        parse_target("nonesuch==1")


@pytest.mark.parametrize("text", ["verl>=0.9", "verl~=0.9", "verl=0.9", "verl<1"])
def test_a_range_of_releases_is_told(text: str) -> None:
    with pytest.raises(SentinelError, match=r"expected one release, as in verl==1\.2\.3$"):
        parse_target(text)
