"""The double of a model class keeps its fields, fills defaults, and refuses a field that is missing."""

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
