"""The first line of a script prepares an environment, and its setup stands where the functions need it."""

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch.distributed as dist

from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.slime import SETUP
from rl_sentinel.audit.engine.worker import frameworks
from rl_sentinel.audit.repro.script import EXIT_2_ON_ERROR


def test_command_in_the_words_of_a_shell() -> None:
    bare = Installation().command("2.13.0")
    assert bare == "pip install torch==2.13.0 numpy"
    full = Installation(packages="numpy a", alone="b==1", python="3.12", note="of its own").command("2.13.0")
    assert full == "Python 3.12: pip install torch==2.13.0 numpy a && pip install --no-deps b==1  # of its own"


def test_requirement_of_a_release_and_of_a_checkout() -> None:
    assert requirement("some", "1.0") == ("some==1.0", "")
    assert requirement("some", "") == ("./some", "./some: the checkout that was audited")


def test_setup_only_where_the_module_is_imported() -> None:
    needs = Installation(setup={"some.loss": ("prepare()",)})
    script = ["from some.loss import f", "", "x = f(1)"]
    assert needs.lines(script) == [script[0], "", "prepare()", *script[1:]]
    other = ["from some.kl import f", "", "x = f(1)"]
    assert needs.lines(other) == other
    assert needs.lines(["x = 1"]) == ["x = 1"]


@pytest.mark.parametrize("wrapped", [True, False])
def test_class_of_an_actor_is_taken_from_its_handle(*, wrapped: bool) -> None:
    class Actor:
        """A class, or the handle that Ray makes of it."""

    inner = type("Inner", (), {})
    if wrapped:
        Actor.__ray_metadata__ = SimpleNamespace(modified_class=inner)  # type: ignore[attr-defined]  # set by Ray
    script = ["from some.ray import Actor", "", "x = Actor()"]
    lines = Installation(actors=("Actor", "Other")).lines(script)
    assert [lines[0], *lines[-2:]] == script
    names = {"Actor": Actor}
    exec("\n".join(lines[1:]), names)  # noqa: S102 - the lines of a script
    assert type(names["x"]) is (inner if wrapped else Actor)


def test_setup_follows_the_last_import() -> None:
    """A recorded script defines a function before its imports of the target; modules share one setup."""
    needs = Installation(setup=dict.fromkeys(("some.loss", "some.log"), ("prepare()",)))
    script = ["import sys", *EXIT_2_ON_ERROR[1:], "from some.log import g", "from some.loss import f", "", "x = f(1)"]
    assert needs.lines(script) == [*script[:-2], "", "prepare()", "", "x = f(1)"]


def test_code_of_a_project_is_imported_from_its_folders() -> None:
    script = ["from __future__ import annotations", "from mine import f", "", "x = f(1)"]
    added = ["from sys import path", "", 'path[:0] = ["", "src"]']
    assert Installation(folders=("", "src")).lines(script) == [script[0], *added, *script[1:]]


@pytest.mark.parametrize("version", ["", "1.0"])
def test_every_framework_names_itself(version: str) -> None:
    others = [f for f in frameworks().values() if f.package not in ("", "rl_sentinel")]
    assert {f.name for f in others} >= {"verl", "areal", "skyrl", "slime"}
    for framework in others:
        needs = framework.installation(version)
        own = f"{framework.name}=={version}" if version else f"./{framework.name}"
        assert own in f"{needs.packages} {needs.alone}".split(), framework.name
        assert bool(needs.note) is not bool(version)


def test_packages_that_need_a_gpu_are_empty_unless_installed() -> None:
    needs = Installation(absent={"some.server": ("absent_engine", "torch"), "some.other": ("other_engine",)})
    script = ["import sys", *EXIT_2_ON_ERROR[1:], "from some.server import f", "", "x = f(1)"]
    assert needs.lines([*script[:-3], "from some.loss import f"]) == [*script[:-3], "from some.loss import f"]
    used = """
import importlib.metadata
import torch
from absent_engine.entry.api import Server, decorator, make


@decorator
class Decorated:
    pass


@decorator(static=True)
def decorated():
    return "decorated"


class Own(Server):
    def __init__(self, made):
        self.made = made


print(Own(1).made, Own(len).made is len)
server = type("Own", (Server,), {})(port=1)
print(Decorated.__name__, decorated())
print(server.port, make.__name__, importlib.metadata.version("absent_engine"))
print(torch.zeros(1).item(), importlib.metadata.version("torch") == torch.__version__)
import other_engine
"""
    lines = [line for line in needs.lines(script) if line not in script[-3:]]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines) + used], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["1 True", "Decorated decorated", "1 make 999", "0.0 True"]
    assert ran.stderr.endswith("ModuleNotFoundError: No module named 'other_engine'\n")
    assert ran.returncode == 2


def test_tests_of_slime_share_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several findings are tested in one process, which can make its group only once."""
    made = list[str]()
    monkeypatch.setattr(dist, "is_initialized", lambda: bool(made))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_options: made.append(backend))
    state = ModuleType("megatron.core.parallel_state")
    vars(state)["initialize_model_parallel"] = lambda: made.append("model")
    core = ModuleType("megatron.core")
    vars(core)["parallel_state"] = state
    monkeypatch.setitem(sys.modules, "megatron", ModuleType("megatron"))
    monkeypatch.setitem(sys.modules, "megatron.core", core)
    for _ in range(2):
        exec("\n".join(SETUP), {})  # noqa: S102 - lines of a script
    assert made == ["gloo", "model"]
