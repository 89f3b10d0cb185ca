"""Source code with type parameters: what remains without them, and that it is Python 3.11."""

import ast
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.type_parameters import GenericLoader, parse_source, without_type_parameters


@pytest.mark.parametrize(
    ("source", "expected", "names"),
    [
        ("def f[T](x: T) -> T: ...", "def f(x: T) -> T: ...", ("T",)),
        ("async def f[T: (int, list[str]), U](): ...", "async def f(): ...", ("T", "U")),
        ("class A[T]: ...", "class A(_TypeParameters[T]): ...", ("T",)),
        ("class A[T](): ...", "class A(_TypeParameters[T]): ...", ("T",)),
        ("class A[T](B, ): ...", "class A(B, _TypeParameters[T]): ...", ("T",)),
        ("class A[**P, *Ts](B[int]): ...", "class A(B[int], _TypeParameters[P, *Ts]): ...", ("**P", "*Ts")),
        ("class A[T](\n    B,  # last\n): ...", "class A(\n    B,  # last\n_TypeParameters[T]): ...", ("T",)),
        ("class A:\n    def f[T](self): ...", "class A:\n    def f(self): ...", ("T",)),
        ("x[0] = y\ndef f(): return [1]", "x[0] = y\ndef f(): return [1]", ()),
        ("'def f[T]()'", "'def f[T]()'", ()),
    ],
)
def test_without_type_parameters(source: str, expected: str, names: tuple[str, ...]) -> None:
    assert without_type_parameters(source.encode()) == (expected, names)


def test_keywords_of_a_class_stay_last() -> None:
    text, _ = without_type_parameters(b"class A[T](B, metaclass=M): ...")
    assert text == "class A(B, _TypeParameters[T], metaclass=M): ..."
    ast.parse(text)


def test_lines_keep_their_numbers() -> None:
    source = "class A[\n    T: int,  # a bound\n    U,\n](B):\n    def f[V](self) -> V:\n        return 1\n"
    tree = parse_source(source.encode())
    assert without_type_parameters(source.encode())[1] == ("T", "U", "V")
    (found,) = tree.body
    assert isinstance(found, ast.ClassDef)
    assert (found.lineno, found.body[0].lineno, found.end_lineno) == (1, 5, 6)


def test_a_module_runs_with_parameters_of_each_kind(tmp_path: Path) -> None:
    """A type variable, several types, and the parameters of a function."""
    file = tmp_path / "generic.py"
    file.write_text(
        "from collections.abc import Callable\n"
        "class Box[T, *Ts, **P]:\n"
        "    def apply(self, f: Callable[P, T], *args: P.args, **options: P.kwargs) -> tuple[T, *Ts]: ...\n"
    )
    names: dict[str, Any] = {"__name__": "generic"}
    code = GenericLoader("generic", str(file)).get_code("generic")
    assert code is not None
    exec(code, names)  # noqa: S102 - our own text
    assert [str(one) for one in names["Box"].__parameters__] == ["~T", "Ts", "~P"]


def test_a_file_that_is_not_text_has_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        parse_source(b"x = '\xff'")


@pytest.mark.parametrize("source", ["def f(:", "def f[T](:", "class A[T"])
def test_other_errors_stay(source: str) -> None:
    with pytest.raises(SyntaxError):
        parse_source(source.encode())
