"""The table of parameter names."""

from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.core.batch import COLUMNS


def test_a_name_has_one_role() -> None:
    """No name stands twice in the table, and each default column exists."""
    names = [name for role in ROLES.values() for name in role.names]
    assert len(names) == len(set(names))
    assert {role.column for role in ROLES.values()} - {""} <= set(COLUMNS)


def test_every_name_can_be_a_parameter() -> None:
    """A name with a space or a dash would never be found."""
    assert all(name.isidentifier() for role in ROLES.values() for name in role.names)
