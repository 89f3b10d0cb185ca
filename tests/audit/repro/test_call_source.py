"""Expressions of calls as Python source."""

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass
from types import ModuleType
from typing import Any

import pytest
import torch

import rl_sentinel.adapters
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.audit.repro.call_source import Source, wrapped
from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.core.call import Call, Function, Use
from rl_sentinel.core.codec import Codec


def test_values_calls_and_uses() -> None:
    text = Source()
    made = Call("argparse.Namespace", (), {"mask": torch.tensor([1, 0]), "earlier": Use("result")[0]["keep"]})
    assert text.text(made) == "Namespace(mask=torch.tensor([1, 0], dtype=torch.int64), earlier=result[0]['keep'])"
    assert text.text({"loss": Function("verl.losses.ppo"), "scale": 0.5}) == "{'loss': ppo, 'scale': 0.5}"
    assert {"from argparse import Namespace", "from verl.losses import ppo"} <= set(text.names.imports)


def test_differences_become_parameters() -> None:
    text = Source()
    runs = [{"mask": [1], "reward": torch.tensor([x]), "again": torch.tensor([x])} for x in (0.0, 1.0)]
    assert text.shared_source(runs, "data") == "{'mask': [1], 'reward': reward, 'again': again}"
    assert text.parameters["reward"] == [
        "torch.tensor([0.0], dtype=torch.float32)",
        "torch.tensor([1.0], dtype=torch.float32)",
    ]
    assert text.shared_source([torch.tensor([5]), torch.tensor([6])], "reward") == "reward_2"


def test_tuples_of_functions() -> None:
    text = Source()
    collator, planner = (Function(f"verl.loader.{name}") for name in ("collate", "plan"))
    assert text.text((collator, planner)) == "(collate, plan)"
    assert text.text((collator,)) == "(collate,)"
    values = [(Call("builtins.dict", (), {"n": n}), planner) for n in (1, 2)]
    assert text.shared_source(values, "parts") == "(dict(n=n), plan)"
    assert text.parameters == {"n": ["1", "2"]}


def test_names_that_are_no_identifiers() -> None:
    text = Source()
    assert text.text(Call("types.SimpleNamespace", (), {"actor.lam": 1.0})) == "SimpleNamespace(**{'actor.lam': 1.0})"
    assert text.text(Use("self").attribute("seen")) == "owner.seen"


def test_a_function_of_another_function_is_not_included() -> None:
    """A decorated function is, although its wrapper is such a function."""
    number = 2.0

    def inner(x: float) -> float:
        return x * number

    with pytest.raises(Unwritable, match="inner uses number of the function around it"):
        Source().include(inner)
    assert Source().include(replaced_globals) == "replaced_globals"


def test_a_function_without_a_name_is_not_included() -> None:
    with pytest.raises(Unwritable, match="has no name, so a script cannot define it"):
        Source().include(lambda: None)


def test_long_text_is_broken() -> None:
    assert wrapped("f(", ["a", "b"], ")") == "f(a, b)"
    assert wrapped("f(", ["a" * 60, "b" * 60], ")") == f"f(\n    {'a' * 60},\n    {'b' * 60},\n)"


def test_without_source() -> None:
    with pytest.raises(Unwritable, match="a value of type object cannot be written"):
        Source().text(object())


def _package_name() -> str:
    return rl_sentinel.__name__


def test_a_module_of_this_package() -> None:
    """A script runs where this package is not installed."""
    with pytest.raises(Unwritable, match="uses the module rl_sentinel"):
        Source().include(_package_name)


PACKAGE = "rl_sentinel.adapters"

CODECS = sorted(
    {
        value
        for module in pkgutil.walk_packages(rl_sentinel.adapters.__path__, f"{PACKAGE}.")
        for value in vars(import_module(module.name)).values()
        if isclass(value) and issubclass(value, Codec)
    },
    key=lambda codec: codec.__qualname__,
)


def _called(module: ModuleType) -> Iterator[Any]:
    """The functions and classes of this package that a module's steps call, and those that make its objects."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Step", "Object"}:
            given = [keyword.value for keyword in node.keywords if keyword.arg == "call"] + node.args[:1]
            values = (vars(module).get(one.id) for one in given if isinstance(one, ast.Name))
            yield from (v for v in values if (inspect.isfunction(v) or isclass(v)) and v.__module__.startswith("rl_"))


MODULES = [import_module(module.name) for module in pkgutil.walk_packages(rl_sentinel.adapters.__path__, f"{PACKAGE}.")]


def test_modules_have_such_calls() -> None:
    assert sum(any(_called(module)) for module in MODULES) > 100


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.removeprefix(f"{PACKAGE}."))
def test_calls_of_adapters_can_be_written_without_the_package(module: ModuleType) -> None:
    for called in _called(module):
        text = Source()
        text.include(called)
        lines = [*text.names.imports, *"\n".join(text.included.values()).splitlines()]
        imports = [line for line in lines if line.strip().startswith(("import rl_sentinel", "from rl_sentinel"))]
        assert not imports, called.__name__


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.__qualname__)
def test_included_class_can_be_run_without_the_package(codec: type) -> None:
    """An alias such as ``Axis`` belongs to the module that assigns it: ``from typing import Axis`` fails."""
    text = Source()
    name = text.include(codec)
    script = "\n".join(["from __future__ import annotations", *text.names.imports, *text.included.values()])
    assert "rl_sentinel" not in script
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(script, namespace)  # noqa: S102 - the script of a finding
    assert isclass(namespace[name])
