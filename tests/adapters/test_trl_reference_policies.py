"""The reference policy that TRL's trainers create, on a specimen in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, reference_policies
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

LIBRARY = """
    from types import SimpleNamespace

    import torch
    from torch import nn

    LlamaConfig = SimpleNamespace

    class LlamaForCausalLM(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config, self.lm_head = config, nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def save_pretrained(self, folder):
            torch.save(self, f"{folder}/model.pt")

        @classmethod
        def from_pretrained(cls, folder):
            return torch.load(f"{folder}/model.pt", weights_only=False)

    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, **special):
            pass
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class {name}Config:
        output_dir: str
        beta: float = 0.0
        num_generations: int = 8
"""

TRAINER = """
    from copy import deepcopy

    from transformers import LlamaForCausalLM

    class {name}Trainer:
        def __init__(self, model, {passed}args, train_dataset, processing_class):
            self.model, self.rows = model, list(train_dataset)
            self.ref_model = {reference}
"""

TRAINED, SAVED = "deepcopy(model)", "LlamaForCausalLM.from_pretrained(model.config._name_or_path)"


def _bound(loads: Loads, reference: str, passed: str = "") -> tuple[Target, dict[str, Boundary]]:
    tree = {"trl/__init__.py": ""}
    for name, own in (("DPO", ""), ("GRPO", "reward_funcs, "), ("RLOO", passed or "reward_funcs, ")):
        text = TRAINER.replace("{passed}", own).replace("{reference}", reference)
        tree[f"trl/trainer/{name.lower()}_trainer.py"] = text.replace("{name}", name)
        tree[f"trl/trainer/{name.lower()}_config.py"] = CONFIG.replace("{name}", name)
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": LIBRARY})
    made = [one for one in reference_policies.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.path.rpartition(".")[2]: one for one in made}


def test_reads_back(loads: Loads) -> None:
    target, mine = _bound(loads, TRAINED)
    assert set(mine) == {"DPOTrainer", "GRPOTrainer", "RLOOTrainer"}
    check_round_trips(target, mine.values())


def test_without_trainers_that_are_given_the_reference(loads: Loads) -> None:
    assert set(_bound(loads, TRAINED, "ref_policy, ")[1]) == {"DPOTrainer", "GRPOTrainer"}


@pytest.mark.parametrize("trainer", ["DPOTrainer", "GRPOTrainer", "RLOOTrainer"])
@pytest.mark.parametrize(("reference", "found"), [(TRAINED, False), (SAVED, True)])
def test_reference_of_a_trained_model(loads: Loads, trainer: str, reference: str, found: bool) -> None:
    """It has the weights of the model, and not those at the path that the model was loaded from."""
    target, mine = _bound(loads, reference)
    check_verdict(PLC004, mine[trainer], "reference of a model", target, found=found)
