"""Changes of a source file: bodies of functions on one side, everything that runs at import on the other."""

import pytest

from rl_sentinel.audit.source.changed_functions import compare

TEXT = '''"""A module."""

SCALE = 2.0  # a constant


@register("mean")
def mean(values, scale=SCALE):
    """The mean."""
    def inner(x):
        return x * scale
    return inner(sum(values)) / len(values)


class Loss:
    clip: float = 0.2

    def forward(self, x):
        return x - self.clip

    async def later(self): return await self.forward(1)


total = lambda values: sum(values)
'''


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("return x * scale", "return x / scale", {6}),  # a nested function belongs to the outer one
        ("return x - self.clip", "# why\n        return x + self.clip", {17}),
        ("return await self.forward(1)", "return await self.forward(2)", {20}),
        ("return x - self.clip", "return x - self.clip  # type: ignore", {17}),  # compilers read comments
        ("TEXT", "TEXT", set()),
    ],
)
def test_body_of_a_function(old: str, new: str, changed: set[int]) -> None:
    change = compare(TEXT, TEXT.replace(old, new))
    assert change is not None
    assert change.functions == changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2.0", "SCALE = 3.0"),
        ('"mean")', '"sum")'),  # a decorator
        ("scale=SCALE", "scale=1.0"),  # a default
        ("(self, x)", "(self, x: int)"),
        ("clip: float = 0.2", "clip: float = 0.3"),
        ("The mean.", "The sum."),  # a docstring can be read without a call
        ("# a constant", "# a number"),  # so can source text
        ("sum(values)\n", "max(values)\n"),  # a lambda outside of functions
        ("return x - self.clip", "yield x - self.clip"),  # a call gives a generator
        ("return x - self.clip", "return super().forward(x)"),
        ("class Loss:", "class Loss(Base):"),
        ("    async def", "    def"),
        ("def mean", "def other(): ...\n\n\ndef mean"),
        ("class Loss:", "class Loss"),  # no Python
    ],
)
def test_everything_else_is_no_change_of_functions(old: str, new: str) -> None:
    changed = TEXT.replace(old, new)
    assert changed != TEXT
    assert compare(TEXT, changed) is None
    assert compare(changed, TEXT) is None


def test_lines_of_what_did_not_change() -> None:
    change = compare(TEXT, TEXT.replace("return x * scale", "x = x + 0\n        return x * scale"))
    assert change is not None
    assert change.functions == {6}
    assert change.lines == {6: 6, 14: 15, 17: 18, 18: 19, 20: 21}


def test_other_line_ends_are_no_change() -> None:
    change = compare(TEXT, TEXT.replace("\n", "\r\n"))
    assert change is not None
    assert not change.functions
