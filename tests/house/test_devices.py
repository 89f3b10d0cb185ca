"""No tensor is made on the default device: each constructor takes ``device`` from an input."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rl_sentinel

PACKAGE = Path(rl_sentinel.__file__).parent

#: Packages that this holds for.
PACKAGES = ("core", "laws", "search", "signal", "train")

#: Functions of torch that make a tensor from anything but a tensor.
CONSTRUCTORS = {
    *("arange", "as_tensor", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn"),
    *(
        "randperm",
        "tensor",
        "zeros",
        "normal",
        "scalar_tensor",
        "tril_indices",
        "triu_indices",
        "Tensor",
        "FloatTensor",
    ),
}


def _without_device(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
            if torch and node.func.attr in CONSTRUCTORS and "device" not in {k.arg for k in node.keywords}:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and node.module == "torch":  # their calls would not be seen
            yield from (
                f"line {node.lineno}: {one.name}" for one in node.names if one.name in CONSTRUCTORS - {"Tensor"}
            )
        if isinstance(node, ast.Import) and any(one.name == "torch" and one.asname for one in node.names):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_constructor_names_a_device(package: str) -> None:
    found = {
        f"{path.relative_to(PACKAGE)} {call}"
        for path in (PACKAGE / package).rglob("*.py")
        for call in _without_device(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_what_counts() -> None:
    assert list(_without_device("torch.zeros(3)")) == ["line 1: torch.zeros(3)"]
    assert list(_without_device("torch.Tensor(3)")) == ["line 1: torch.Tensor(3)"]
    assert list(_without_device("from torch import Tensor, zeros")) == ["line 1: zeros"]
    assert list(_without_device("import torch as t")) == ["line 1: import torch as t"]
    assert not list(_without_device("torch.zeros(3, device=x.device) + x.new_zeros(3) + torch.zeros_like(x)"))
