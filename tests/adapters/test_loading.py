"""Loading: what is stood in for, what is not, and that nothing absent computes."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rl_sentinel.adapters import loading
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.evaluation import invoke
from rl_sentinel.adapters.loading import forbid_stand_ins, used
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.errors import StandInTouched, Unbindable

Loaded = Callable[..., Target]


@pytest.fixture
def loaded(loads: Callable[..., Target]) -> Loaded:
    def write(files: dict[str, str], *, overlay: dict[str, str] | None = None, **about: Any) -> Target:
        toy = Framework(name="toy", package=about.pop("package", "toy"), boundaries=lambda _t: iter(()), **about)
        return loads(toy, {"toy/__init__.py": ""} | files, overlay)

    return write


MODULE = """
    from __future__ import annotations
    import absent_ray
    import absent_a.b.c as deep
    from PIL_absent import Image
    from absent_tools import Mixin, deprecated, wraps_with, VERSION

    if VERSION < "2":
        raise RuntimeError("old")

    @absent_ray.remote
    class Worker(absent_ray.Base, Mixin):
        size: int | deep.Thing = 3
        def double(self): return 2 * self.size

    class Local(deep.Thing["x"]):
        def reach(self): return self.elsewhere

    @deprecated
    def plain(x, kind: "Image.Image | None" = None): return x + 1

    @wraps_with.x(1, y=2)
    def decorated(x: Image.Image | str | None = None): return x + 2

    local = Local()
    def reaches(): return local.reach()
    def uses_now(): return absent_ray.get(1)
    def uses_call(): return deprecated("x")
    def catches():
        try:
            return absent_ray.get(1)
        except Exception:
            return 7
    def imports_late():
        import toy.late
        return toy.late.NUMBER
"""


def test_stand_ins_serve_while_loading(loaded: Loaded) -> None:
    toy = loaded({"toy/m.py": MODULE}).module("toy.m")
    assert toy.plain(1) == 2
    assert toy.decorated(1) == 3
    assert toy.Worker().double() == 6
    assert used == dict.fromkeys(("absent_ray", "absent_a", "PIL_absent", "absent_tools"), "stand-in")


def test_all_names_of_an_absent_module(loaded: Loaded) -> None:
    text = "from math import pi as own\nfrom absent_core.parts import *\nclass Mine(Attention):\n"
    text += "    size = min(own, 3)\n    def of(self, x: Tensor): return x\n"
    module = loaded({"toy/m.py": text}).module("toy.m")
    assert module.Mine.__mro__[1].__name__ == "Attention"
    assert (module.Mine.size, module.own) == (3, 3.141592653589793)


def test_absent_packages_stay_absent_elsewhere(loaded: Loaded) -> None:
    loaded({"toy/m.py": "import absent_ray"}).module("toy.m")
    assert importlib.util.find_spec("absent_ray") is None
    assert "absent_ray" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent_ray")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("uses_now", "absent_ray.get"),
        ("uses_call", "absent_tools.deprecated()"),
        ("catches", "absent_ray.get"),
        ("reaches", "absent_a.b.c.Thing.elsewhere (base class of Local)"),
    ],
)
def test_touched_while_running(loaded: Loaded, call: str, name: str) -> None:
    toy = loaded({"toy/m.py": MODULE}).module("toy.m")
    with pytest.raises(StandInTouched, match=r"which is not installed here") as caught, forbid_stand_ins():
        getattr(toy, call)()
    assert str(caught.value) == f"the boundary uses {name}, which is not installed here"


def test_instance_with_absent_base(loaded: Loaded) -> None:
    toy = loaded({"toy/m.py": MODULE}).module("toy.m")
    toy.Local()
    with pytest.raises(StandInTouched, match=r"absent_a\.b\.c\.Thing \(base class of Local\)"), forbid_stand_ins():
        toy.Local()


def test_modules_may_load_while_running(loaded: Loaded) -> None:
    late = "import absent_ray\nHANDLE = absent_ray.start()\nNUMBER = 5\n"
    toy = loaded({"toy/m.py": MODULE, "toy/late.py": late}).module("toy.m")
    with forbid_stand_ins():
        assert toy.imports_late() == 5


@pytest.mark.parametrize("kind", ["ImportError", "(OSError, ModuleNotFoundError)", "Exception", ""])
def test_optional_imports_fail_as_they_should(loaded: Loaded, kind: str) -> None:
    source = f"try:\n    import absent_x\n    HERE = True\nexcept {kind}:\n    HERE = False\n"
    assert loaded({"toy/m.py": source}).module("toy.m").HERE is False


@pytest.mark.parametrize(
    "around",
    [
        "class A:\n    def f():\n{}\n    HERE = f()",
        "if False:\n    pass\nelse:\n    with open('/dev/null'):\n        def f():\n{}\n        HERE = f()",
        "try:\n    1 / 0\nexcept ArithmeticError:\n    def f():\n{}\n    HERE = f()",
        "try:\n    pass\nfinally:\n    for _ in range(1):\n        def f():\n{}\n        HERE = f()",
        "match 1:\n    case 1:\n        def f():\n{}\n        HERE = f()",
    ],
)
def test_optional_imports_however_deep(loaded: Loaded, around: str) -> None:
    attempt = ("try:", "    import absent_x", "    return True", "except ImportError:", "    return False")
    source = around.format("\n".join(f"            {line}" for line in attempt))
    toy = loaded({"toy/m.py": source}).module("toy.m")
    assert (toy.A.HERE if hasattr(toy, "A") else toy.HERE) is False


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import absent_x\nexcept ValueError:\n    pass\n",
        "try:\n    import absent_x\nexcept ImportError as e:\n    raise ImportError('pip install') from e\n",
        "try:\n    pass\nexcept ImportError:\n    pass\nimport absent_x\n",
    ],
)
def test_imports_that_are_not_optional(loaded: Loaded, source: str) -> None:
    loaded({"toy/m.py": source}).module("toy.m")
    assert used == {"absent_x": "stand-in"}


@pytest.mark.parametrize(
    "source",
    ["import toy.gone", "from . import gone", "import torch.gone", "import _gone_std; import numpy.gone"],
)
def test_never_stood_in(loaded: Loaded, source: str) -> None:
    with pytest.raises(Unbindable, match=r"gone"):
        loaded({"toy/m.py": source}).module("toy.m")


def test_real_package_gives_its_submodule(loaded: Loaded) -> None:
    light = {"light_pkg/__init__.py": "", "light_pkg/sub.py": "NUMBER = 4"}
    target = loaded({"toy/m.py": "from light_pkg import sub\nN = sub.NUMBER"}, overlay=light)
    assert target.module("toy.m").N == 4
    assert used == {"light_pkg": "light"}


def test_light_package_that_lacks_its_own_need(loaded: Loaded) -> None:
    target = loaded({"toy/m.py": "import light_pkg"}, overlay={"light_pkg/__init__.py": "import absent_need"})
    with pytest.raises(Unbindable, match="absent_need"):
        target.module("toy.m")


def test_fakes_bare_packages_and_environment(loaded: Loaded) -> None:
    def parallel() -> ModuleType:
        module = ModuleType("mega.core.parallel")
        vars(module)["world_size"] = lambda: 1
        return module

    files = {
        "toy/engine/__init__.py": """
            from mega.training import pad_vocabulary
            from .loss import reduce
            raise RuntimeError('engine started')
        """,
        "toy/engine/loss.py": """
            from mega.core import parallel
            import mega.core.parallel as again
            def reduce(): return 3
        """,
        "toy/m.py": """
            import os
            from toy.engine import loss, pad_vocabulary, reduce
            R = reduce()
            N = loss.parallel.world_size()
            E = os.environ["TOY_FLAG"]
        """,
    }
    about: dict[str, Any] = {
        "fakes": {"mega.core.parallel": parallel},
        "bare": ("toy.engine",),
        "environment": {"TOY_FLAG": "on"},
    }
    toy = loaded(files, **about).module("toy.m")
    assert (toy.N, toy.E, toy.R) == (1, "on", 3)
    with pytest.raises(StandInTouched, match="pad_vocabulary"), forbid_stand_ins():
        toy.pad_vocabulary(1)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from toy.engine import nothing  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - a name that the package lacks
    assert used["mega.core.parallel"] == "fake"


def test_a_package_that_needs_more_than_a_fake_has_is_absent(
    tmp_path: Path, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own import fails where the fake has no submodule: the target gets a stand-in for it."""
    server = tmp_path / "site" / "webserver.py"
    server.parent.mkdir()
    server.write_text("from models.main import Model\n")
    monkeypatch.syspath_prepend(server.parent)
    files = {"toy/m.py": "from webserver import App\nfrom models import field\n"}
    target = loaded(files, fakes={"models": lambda: ModuleType("models")})
    with pytest.raises(StandInTouched, match=r"webserver\.App"), forbid_stand_ins():
        target.module("toy.m").App()
    assert used["webserver"] == "stand-in"


def test_type_parameters_are_read(loaded: Loaded) -> None:
    source = """
        from __future__ import annotations
        from dataclasses import dataclass

        @dataclass
        class Box[T]:
            item: T

            def mapped[U](self, function) -> Box[U]:
                return Box(function(self.item))

        def opened[T](box: Box[T]) -> T:
            return box.item
    """
    target = loaded({"toy/boxes.py": source})
    box = target.find("toy.boxes.Box")
    assert target.find("toy.boxes.opened")(box[int](2).mapped(lambda x: x + 1)) == 3
    assert target.source(box) == ("toy/boxes.py", 5)
    assert "item: T" in inspect.getsource(box)


def test_a_former_package_is_loaded(tmp_path: Path, loaded: Loaded) -> None:
    def settings() -> ModuleType:
        module = ModuleType("house.config")
        vars(module)["Settings"] = dict
        return module

    about: dict[str, Any] = {"package": "house", "former": ("toy",), "former_fakes": {"house.config": settings}}
    target = loaded({"toy/m.py": "def f(): return 1\n"}, **about)
    assert target.package == "toy"
    assert target.call("house.m.f") == 1
    assert invoke(target, "house.config.Settings", [], {}, {}) == {}


def test_wrong_folder_is_refused(tmp_path: Path) -> None:
    framework = Framework(name="toy", package="toy", boundaries=lambda _t: iter(()))
    path = list(sys.path)
    with pytest.raises(Unbindable, match="toy is absent in"):
        loading.load(framework, tmp_path, "")
    assert sys.path == path
