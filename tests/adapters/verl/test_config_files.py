"""Sections of configuration files that ship with verl."""

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from adapters.checks import Loads
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.verl import FRAMEWORK, config_files
from rl_sentinel.adapters.verl.config_files import _moved_by, _references, default_config
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs

WHOLE = {"critic": {"grad_clip": 1.0, "model": {"path": ""}}}

#: The same in parts: a file names those that it is merged over, in its folder or in another one.
PARTS = {
    "ppo_trainer": {"defaults": [{"critic@critic": "dp"}, "_self_"], "critic": {"grad_clip": 1.0}},
    "critic/dp": {"defaults": ["base", "_self_"], "model": {"path": ""}},
    "critic/base": {"grad_clip": 3.0, "model": {"path": "any"}},
}


@pytest.mark.parametrize(
    "written", [{"_generated_ppo_trainer": WHOLE, "ppo_trainer": {}}, {"ppo_trainer": WHOLE}, PARTS]
)
def test_section(loads: Loads, written: dict[str, object]) -> None:
    """A section is read from the composed file, from one whole file, or from the parts that a file lists."""
    tree = {f"verl/trainer/config/{name}.yaml": json.dumps(content) for name, content in written.items()}
    target = loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})
    codec = default_config(target, "critic", {"ppo_epochs": Constant(2)})
    assert str(target.root) not in repr(codec), "a script with this path runs on one machine only"
    section = evaluate(target, codec.put(Inputs(batch_of(torch.ones(1, 1, dtype=torch.bool)))), StepResults())
    assert section == {"grad_clip": 1.0, "model": {"path": ""}, "ppo_epochs": 2}


def test_reading_is_not_traced() -> None:
    seen: list[str] = []

    def watch(frame: FrameType, _event: str, _argument: object) -> None:
        seen.append(frame.f_code.co_name)

    def inner() -> None: ...

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        with config_files.untraced():
            inner()
        put_back = sys.gettrace() is watch
    finally:
        sys.settrace(before)
    assert put_back
    assert "untraced" in seen
    assert "inner" not in seen


def test_a_file_is_read_once_and_each_section_is_its_own(loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"verl/trainer/config/ppo_trainer.yaml": json.dumps(WHOLE)}
    target = loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})
    reads: list[Path] = []
    read = config_files.merge_defaults

    def counted(file: Path) -> Any:
        reads.append(file)
        return read(file)

    monkeypatch.setattr(config_files, "merge_defaults", counted)
    sections = [
        evaluate(
            target,
            default_config(target, "critic", fields).put(Inputs(batch_of(torch.ones(1, 1, dtype=torch.bool)))),
            StepResults(),
        )
        for fields in ({"grad_clip": Constant(2.0)}, {})
    ]
    assert [section["grad_clip"] for section in sections] == [2.0, 1.0]
    assert len(reads) == 1


def test_interpolations_are_resolved_after_fields_are_set(loads: Loads) -> None:
    written = {"rows": 2, "actor": {"rows": "${rows}", "rate": "???"}, "critic": {"rows": "${actor.rows}"}}
    tree = {"verl/trainer/config/ppo_trainer.yaml": json.dumps(written)}
    target = loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})
    for fields, actor, critic in (({"rows": 3}, 3, 3), ({"actor.rows": 5}, 5, 5), ({"critic": {"rows": 7}}, 2, 7)):
        codec = default_config(target, "", {name: Constant(x) for name, x in fields.items()}, resolved=True)
        config = evaluate(target, codec.put(Inputs(batch_of(torch.ones(1, 1, dtype=torch.bool)))), StepResults())
        assert (config["actor"]["rows"], config["critic"]["rows"]) == (actor, critic)


def test_interpolations_may_be_relative_and_outside_of_the_section() -> None:
    names = {
        "actor.rows": tuple(_references("actor.rows", "${.size}")),
        "actor.ends.last": tuple(_references("actor.ends.last", "${oc.select:..rows,${data.last}}")),
        "other": tuple(_references("other", "${trainer}")),
    }
    assert names == {
        "actor.rows": ("actor.size",),
        "actor.ends.last": ("oc.select", "actor.rows", "data.last"),
        "other": ("trainer",),
    }
    assert _moved_by(names, {"actor.size"}) == {"actor.size", "actor.rows", "actor.ends.last"}
    assert _moved_by(names, {"data"}) == {"data", "actor.ends.last"}
    assert _moved_by(names, {"trainer.steps"}) == {"trainer.steps", "other"}


def test_a_field_may_replace_a_section_that_has_an_interpolation(loads: Loads) -> None:
    tree = {"verl/trainer/config/ppo_trainer.yaml": json.dumps({"rows": 2, "critic": {"rows": "${rows}"}})}
    target = loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})
    codec = default_config(target, "", {"critic": Constant(None)}, resolved=True)
    config = evaluate(target, codec.put(Inputs(batch_of(torch.ones(1, 1, dtype=torch.bool)))), StepResults())
    assert config["critic"] is None
