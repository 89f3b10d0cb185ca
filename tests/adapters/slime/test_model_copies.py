"""The weights of each part of an actor's step, on a specimen of the target's call shape in words of our own."""

from typing import Any

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.slime import FRAMEWORK, model_copies
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SOURCE = """
    import torch

    def named_parameters(args, model): ...

    def forward_only(args, model, store_prefix=""): ...

    def load_checkpoint(model, *rest): ...

    def get_data_iterator(args, model, rollout_data): ...

    def train(rollout_id, model): ...

    class Store:
        def make(self):
            self.weights = {"actor": {}}

        def store(self, tag):
            copy = self.weights.setdefault(tag, {})
            self.update_cpu_params_dict(copy)

        def update_cpu_params_dict(self, copy):
            for name, weight in named_parameters(self.args, self.model):
                copy[name] = torch.empty_like(weight, pin_memory=True).copy_(weight)
            torch.cuda.synchronize()

        def use(self, tag):
            for name, weight in named_parameters(self.args, self.model):
                weight.copy_(self.weights[tag][name])

    class MegatronTrainRayActor(Store):
        def load_other_checkpoint(self, tag, path):
            self.args.load = path
            load_checkpoint(self.model, None)
            self.store(tag)

        def train(self, rollout_id, rollout_data_ref):
            data = self._get_rollout_data(rollout_data_ref)
            get_data_iterator(self.args, self.model, data)
            self.use(FIRST)
            data.update(forward_only(self.args, self.model, store_prefix="ref_"))
            self.use("old_actor" if self.args.keep_old_actor else "actor")
            data.update(forward_only(self.args, self.model))
            if BACK:
                self.use("actor")
            train(rollout_id, self.model)
            if STORED:
                self.store("actor")
"""

SOUND = {"FIRST": '"ref"', "BACK": "self.args.keep_old_actor", "STORED": "True"}

BACKUPS = """
    from torch import empty_like

    from slime.backends.megatron_utils import accelerator

    class TensorBackuper:
        def __init__(self, source):
            self.source, self.copies = source, {}

        @staticmethod
        def create(source_getter, single_tag):
            return TensorBackuper(source_getter)

        def get(self, tag):
            return self.copies[tag]

        def backup(self, tag):
            self.copies[tag] = {name: weight.clone() for name, weight in self.source()}
            accelerator.synchronize()

        def restore(self, tag):
            for name, weight in self.source():
                weight.copy_(self.copies[tag][name])
"""

#: The methods of an actor whose copies are in such an object.
WITH_BACKUPS = """
    class Store:
        def store(self, tag):
            self.weights_backuper.backup(tag)

        def use(self, tag):
            self.weights_backuper.restore(tag)
"""


def _bound(loads: Loads, *, backups: bool = False, **words: str) -> tuple[Target, Boundary]:
    source = SOURCE
    for name, word in {**SOUND, **words}.items():
        source = source.replace(name, word)
    files = {"slime/__init__.py": "", "slime/backends/megatron_utils/accelerator.py": "def synchronize(): 1 / 0\n"}
    if backups:
        start, end = source.index("    class Store"), source.index("    class MegatronTrainRayActor")
        imported = "\n    from slime.utils.tensor_backper import TensorBackuper\n"
        source = imported + source[:start] + WITH_BACKUPS + "\n" + source[end:]
        files["slime/utils/tensor_backper.py"] = BACKUPS
    target = loads(FRAMEWORK, {**files, "slime/backends/megatron_utils/actor.py": source})
    (boundary,) = model_copies.boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize("backups", [False, True], ids=["dicts", "backups"])
@pytest.mark.parametrize("setting", list(model_copies.SETTINGS))
def test_each_part_has_its_weights(loads: Loads, setting: str, *, backups: bool) -> None:
    target, boundary = _bound(loads, backups=backups)
    assert answering({("steps", setting): boundary}, target) == []
    check_verdict(PLC004, boundary, setting, target, found=False)


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ({"STORED": "False"}, "reference"),
        ({"FIRST": '"actor"'}, "reference"),
        ({"BACK": "False"}, "reference, old actor"),
    ],
    ids=["training is undone", "reference never used", "old actor is trained"],
)
def test_weights_of_another_model(loads: Loads, words: dict[str, Any], setting: str) -> None:
    target, boundary = _bound(loads, **words)
    check_verdict(PLC004, boundary, setting, target, found=True)


def test_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_round_trips(target, [boundary])
