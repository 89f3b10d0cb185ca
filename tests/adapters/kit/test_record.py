"""The fake of a model class keeps its fields, fills defaults, and refuses a field that is missing."""

import pytest

from rl_sentinel.adapters.kit.record import Record, field


class Point(Record, frozen=True):
    """A model with defaults."""

    across: int
    up: int = 2
    names: list[str] = field(default_factory=list)
    tags: list[str] = field(["a"], max_length=3)


class Place(Point):
    """A model that inherits fields."""

    country: str


def test_fields_and_defaults() -> None:
    one, other = Place(across=1, country="FR"), Place(across=3, up=4, country="FR")
    assert (one.across, one.up, one.names, one.tags, one.country) == (1, 2, [], ["a"], "FR")
    assert (other.across, other.up) == (3, 4)
    one.names.append("x")
    one.tags.append("x")
    assert (other.names, other.tags) == ([], ["a"])


@pytest.mark.parametrize("given", [{}, {"country": "FR"}, {"across": 1}])
def test_a_missing_field_is_named(given: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"Place lacks (across|country)"):
        Place(**given)


def test_copies_and_dicts() -> None:
    """A copy has its own values of some fields; a dict has all fields, of nested records too."""
    one = Place(across=1, country="FR")
    other = one.model_copy(update={"across": 2, "names": [one]})
    assert (one.across, other.across, other.country) == (1, 2, "FR")
    plain = {"across": 1, "up": 2, "names": [], "tags": ["a"], "country": "FR"}
    assert one.model_dump() == plain
    assert other.model_dump() == {**plain, "across": 2, "names": [plain]}
