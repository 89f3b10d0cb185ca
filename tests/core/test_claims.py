"""Claims: checked when they are made, and merged from right to left."""

import pytest

from rl_sentinel.core.claims import Claims, Knob, Said, SettingClaim, claims

EVERY = claims(
    "a.py: docstring",
    scope="group",
    standardized=False,
    corrected_at_most=2.0,
    output_pairs={"kl": "old_logprob against ref_logprob"},
    knobs={"clip": (0.1, 0.4), "by_std": (True, False)},
    refused={"no rows": "a batch has a row"},
    accepted={"one row": "a batch has a row"},
)


def test_each_value_has_the_citation() -> None:
    assert EVERY.scope == Said("group", "a.py: docstring")
    assert EVERY.knobs[1] == Knob("by_std", (True, False), "a.py: docstring")
    assert EVERY.refused == (SettingClaim("no rows", "a batch has a row", "a.py: docstring"),)
    assert EVERY.output_pairs == {"kl": Said("old_logprob against ref_logprob", "a.py: docstring")}
    assert EVERY.baseline is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"skope": "group"}, "claim 'skope' does not exist: the nearest is 'scope'"),
        ({"scope": "gruop"}, "claim scope is 'gruop': the nearest is 'group'"),
        ({"standardized": "yes"}, "claim standardized is 'yes': expected one of True, False"),
        ({"ratio": False}, "claim ratio is False: expected one of True"),
        ({"ratio": 1}, "claim ratio is 1: expected one of True"),
        ({"corrected_at_most": "2.0"}, "claim corrected_at_most is '2.0', expected a float"),
        ({"knobs": "clip"}, "claim knobs is 'clip', expected a mapping from names to values"),
    ],
)
def test_wrong_claim_names_the_nearest(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        claims("a.py", **values)


def test_value_is_checked_without_the_constructor() -> None:
    with pytest.raises(ValueError, match=r"^claim scope is 'row': expected one of token, sequence, group, batch$"):
        Claims(scope=Said("row", "a.py"))  # type: ignore[arg-type]  # the wrong value is the test


def test_merge_takes_the_right_side() -> None:
    merged = EVERY | claims("b.py", scope="batch", masked=True, knobs={"clip": (0.2, 0.3)})
    assert merged.scope == Said("batch", "b.py")
    assert merged.masked == Said(True, "b.py")  # noqa: FBT003 - the claimed value
    assert merged.knobs == (EVERY.knobs[1], Knob("clip", (0.2, 0.3), "b.py"))
    assert merged.output_pairs == EVERY.output_pairs
    assert EVERY | Claims() == EVERY == Claims() | EVERY
