"""Source code with type parameters: what remains without them, and that it is Python 3.11."""

import ast

import pytest

from rl_sentinel.core.type_parameters import parse_source, without_type_parameters


@pytest.mark.parametrize(
    ("source", "expected", "names"),
    [
        ("def f[T](x: T) -> T: ...", "def f(x: T) -> T: ...", ("T",)),
        ("async def f[T: (int, list[str]), U](): ...", "async def f(): ...", ("T", "U")),
        ("class A[T]: ...", "class A(_TypeParameters[T]): ...", ("T",)),
        ("class A[T](): ...", "class A(_TypeParameters[T]): ...", ("T",)),
        ("class A[T](B, ): ...", "class A(B, _TypeParameters[T]): ...", ("T",)),
        ("class A[**P, *Ts](B[int], key=(1, 2)): ...", None, ("P", "Ts")),
        ("class A:\n    def f[T](self): ...", "class A:\n    def f(self): ...", ("T",)),
        ("x[0] = y\ndef f(): return [1]", "x[0] = y\ndef f(): return [1]", ()),
        ("'def f[T]()'", "'def f[T]()'", ()),
    ],
)
def test_without_type_parameters(source: str, expected: str | None, names: tuple[str, ...]) -> None:
    text, found = without_type_parameters(source.encode())
    assert found == names
    assert expected is None or text == expected


def test_keywords_of_a_class_stay_last() -> None:
    text, _ = without_type_parameters(b"class A[T](B, metaclass=M): ...")
    assert text == "class A(B, _TypeParameters[T], metaclass=M): ..."
    ast.parse(text)


def test_lines_keep_their_numbers() -> None:
    source = "class A[\n    T: int,  # a bound\n    U,\n](B):\n    def f[V](self) -> V:\n        return 1\n"
    tree = parse_source(source.encode())
    (found,) = tree.body
    assert isinstance(found, ast.ClassDef)
    assert (found.lineno, found.body[0].lineno, found.end_lineno) == (1, 5, 6)


@pytest.mark.parametrize("source", ["def f(:", "def f[T](:", "class A[T"])
def test_other_errors_stay(source: str) -> None:
    with pytest.raises(SyntaxError):
        parse_source(source.encode())
