"""Which files a boundary can reach by imports, in a tree written for each test."""

from pathlib import Path
from textwrap import dedent

import pytest

from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.reachable_modules import can_reach
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.core.call import Function

TREE = {
    "house/__init__.py": """
        __version__ = "1"
        from house.metrics import accuracy
    """,
    "house/trainer.py": """
        from . import __version__
        from .losses import loss
        def step(): return loss()
        def late():
            import house.rewards
        PLUGIN = "house.plugin.act"
    """,
    "house/losses.py": "from house.kernels import fused as loss",
    "house/kernels/__init__.py": """
        from .fused import fused
        from .other import other
    """,
    "house/kernels/fused.py": "def fused(): pass",
    "house/kernels/other.py": "def other(): pass",
    "house/rewards.py": "",
    "house/metrics.py": "",
    "house/plugin.py": "",
    "house/lonely.py": "",
}


@pytest.mark.parametrize(
    ("file", "reached"),
    [
        ("house/trainer.py", True),
        ("trainer.py", True),  # a file is named by its end
        ("house/losses.py", True),
        ("house/kernels/fused.py", True),  # re-exported by a package
        ("house/kernels/other.py", False),  # a name of the package that nothing imports
        ("house/metrics.py", False),  # imported by the package of which only a value is read
        ("house/rewards.py", True),  # imported inside a function
        ("house/plugin.py", True),  # named by a string
        ("house/lonely.py", True),  # an argument of the boundary
        ("house/absent.py", False),
    ],
)
def test_imports_are_followed(tmp_path: Path, file: str, *, reached: bool) -> None:
    for name, source in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(dedent(source))
    step = Step(call="house.trainer.step", name="x", arguments={"other": Constant(Function("house.lonely.thing"))})
    bound = Boundary(path="house.trainer.step", stage="batch", steps=(step,), outputs={"x": Output("", "", "")})

    assert can_reach(Target(tmp_path, "house"), bound, [f"{file}:f"]) is reached
