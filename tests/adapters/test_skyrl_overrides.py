"""SkyRL's overrides as a dict, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, judged_at, outputs_of, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.overrides import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

CONFIG = """
    import ast
    from types import SimpleNamespace as Section

    def read(text):
        try:
            return None if text == "null" else ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text

    class SkyRLTrainConfig:
        def __init__(self):
            sampling = Section(temperature=1.0, top_p=1.0, stop=None)
            self.generator = Section(sampling_params=sampling, n_samples_per_prompt=1, max_input_length=None)
            optimizer = Section(lr=0.1)
            self.trainer = Section(
                max_prompt_length=512,
                algorithm=Section(temperature=None, eps_clip_high=0.2),
                policy=Section(optimizer_config=optimizer),
                run_name="run",
                project_name="project",
            )

        @classmethod
        def from_cli_overrides(cls, args: dict):
            config = cls()
            for path, value in args.items():
                *sections, name = path.split(".")
                owner = config
                for section in sections:
                    owner = getattr(owner, section)
                setattr(owner, name, VALUE)
            config.fill_in()
            return config

        def fill_in(self):
            "self.trainer.algorithm.temperature = self.generator.sampling_params.temperature"
            self.trainer.algorithm.temperature = PASSED
            if MISSING:
                self.generator.max_input_length = self.trainer.max_prompt_length
"""

SOUND = {
    "VALUE": "value",
    "PASSED": "self.generator.sampling_params.temperature",
    "MISSING": "self.generator.max_input_length is None",
}

SETTINGS = (
    "overrides, numbers",
    "overrides, texts",
    "overrides, a line break",
    "overrides, a tag",
    "overrides, beside defaults",
)


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(CONFIG, SOUND | broken)
    target = loads(FRAMEWORK, {"skyrl/train/config.py": source})
    return target, by_setting(boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    assert tuple(found) == SETTINGS
    check_calls(target, found.values())


def test_by_hand(loads: Loads) -> None:
    """A number where its own section and the algorithm's read it, and two texts as they are."""
    target, found = _bound(loads)
    one = batch_of(torch.ones(1, 1, dtype=torch.bool))
    numbers = outputs_of(target, found[SETTINGS[0]], SETTINGS[0], one)
    assert numbers["generator.sampling_params.temperature"].item() == pytest.approx(0.7)
    assert numbers["trainer.algorithm.temperature"].item() == pytest.approx(0.7)
    assert numbers["generator.max_input_length"].item() == numbers["trainer.max_prompt_length"].item() == 600
    texts = outputs_of(target, found[SETTINGS[1]], SETTINGS[1], one)
    assert [texts["trainer.run_name"].item(), texts["trainer.project_name"].item()] == [1, 1]


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"VALUE": "read(str(value))"}, {"overrides, texts"}),
        ({"VALUE": "[repr(one)[1:-1] for one in value] if isinstance(value, list) else value"}, {SETTINGS[2]}),
        ({"PASSED": "1.0"}, {"overrides, numbers"}),
        ({"MISSING": "True"}, {"overrides, beside defaults"}),
        ({"MISSING": "False"}, {"overrides, numbers"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """Texts that are read as numbers, line breaks that are escaped, and wrong defaults."""
    target, found = _bound(loads, **broken)
    judgements = {setting: judged_at(CFG004, one, setting, target) for setting, one in found.items()}
    assert all(judgement.tried for judgement in judgements.values())
    assert {setting for setting, judgement in judgements.items() if judgement.found is not None} == where


def test_release_without_a_field(loads: Loads) -> None:
    """Settings that the release lacks are left out, and a boundary of none is not made."""
    target = loads(FRAMEWORK, {"skyrl/train/config.py": CONFIG.replace("stop=None", "other=None")})
    names = [name for one in boundaries(target) if isinstance(one, Boundary) for name in one.settings]
    assert names == ["overrides, numbers", "overrides, texts", "overrides, beside defaults"]
