"""slime's data source, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.slime import FRAMEWORK, data_source
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.resume_differs import LAW as RES001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

TYPES = """
    class Sample:
        def __init__(self, prompt=""): self.prompt = prompt
"""

DATA = """
    import random

    class Dataset:
        def __init__(self, path, **more): self.samples = open(path).readlines()

        def shuffle(self, epoch):
            self.samples = random.Random(self.seed + epoch).sample(self.origin_samples, len(self.origin_samples))
"""

SOURCE = """
    import copy
    import os
    import torch
    from slime.utils.data import Dataset
    from slime.utils.tokens import load_tokenizer

    class RolloutDataSource:
        def __init__(self, args):
            self.args, self.drawn, self.epoch = args, 0, 0
            self.dataset = Dataset(args.prompt_data, tokenizer=load_tokenizer(args.hf_checkpoint))
            if args.rollout_shuffle:
                self.dataset.shuffle(0)

        def get_samples(self, count):
            groups = []
            for _ in range(count):
                rows = self.dataset.samples
                if self.args.rollout_shuffle and self.drawn // len(rows) != self.epoch:
                    self.epoch += 1
                    self.dataset.shuffle(self.epoch)
                at = LAST if START else self.drawn
                group = [copy.copy(self.dataset.samples[at % len(rows)]) for _ in range(self.args.n_samples_per_prompt)]
                for sample in group:
                    sample.index = self.drawn
                groups.append(group)
                self.drawn += 1
            return groups

        def save(self, number):
            torch.save({"drawn": self.drawn, "epoch": self.epoch}, os.path.join(self.args.save, f"{number}.pt"))

        def load(self, number):
            vars(self).update(torch.load(os.path.join(self.args.load, f"{number}.pt")))
            if self.args.rollout_shuffle and SHUFFLES:
                self.dataset.shuffle(self.epoch)
"""


def _bound(loads: Loads, start: str = "False", shuffles: str = "True") -> tuple[Target, Boundary]:
    source = SOURCE.replace("START", start).replace("SHUFFLES", shuffles).replace("LAST", "min(self.drawn, 1)")
    files = {
        "slime/utils/types.py": TYPES,
        "slime/utils/data.py": DATA,
        "slime/utils/tokens.py": "def load_tokenizer(name): raise OSError(name)",
        "slime/rollout/data_source.py": source,
    }
    target = loads(FRAMEWORK, files)
    return target, the_only(data_source.boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [(DAT002, "default", {"start": "True"}), (RES001, "shuffled", {"shuffles": "False"})],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """Two prompts that are drawn alone; a shuffle that a restart forgets."""
    target, boundary = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundary, setting, target, found=found)
