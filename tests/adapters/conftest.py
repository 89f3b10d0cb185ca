"""Loading a target from sources written into a temporary folder, and putting imports back after."""

import ast
import builtins
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pytest
import torch.distributed as dist

from adapters.checks import Loads
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.loading import load, used
from rl_sentinel.adapters.target import Target


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loads]:
    """Write a tree and an overlay, and load the framework's package from there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    monkeypatch.setitem(vars(inspect), "ast", ast)
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    modules, environment = dict(sys.modules), dict(os.environ)
    used.clear()

    def write(framework: Framework, files: Mapping[str, str], overlay: Mapping[str, str] | None = None) -> Target:
        for folder, sources in (("tree", files), ("light", overlay or {})):
            for name, source in sources.items():
                place = tmp_path / folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(dedent(source))
                for package in place.relative_to(tmp_path / folder).parents:
                    (tmp_path / folder / package / "__init__.py").touch()
        return load(framework, tmp_path / "tree", "1.0", [tmp_path / "light"])

    yield write
    if dist.is_initialized():
        dist.destroy_process_group()
    ours = {name.partition(".")[0] for name in used}
    for name in set(sys.modules) - set(modules):
        place = getattr(sys.modules[name], "__file__", None) or ""
        if name.partition(".")[0] in ours or Path(place).is_relative_to(tmp_path):
            del sys.modules[name]
    sys.modules.update(modules)
    os.environ.clear()
    os.environ.update(environment)
