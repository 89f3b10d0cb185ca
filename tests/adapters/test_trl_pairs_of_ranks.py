"""TRL's pair trainers over ranks, under accumulation and with stored references, and BCO, on specimens."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, bco, pair_accumulation, pair_ranks, precomputed
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

DPO = "trl.trainer.dpo_trainer.DPOTrainer.compute_loss"
BCO = "trl.trainer.bco_trainer.BCOTrainer.compute_loss"
ORPO = "trl.trainer.orpo_trainer.ORPOTrainer.compute_loss"
KTO = "trl.trainer.kto_trainer.KTOTrainer.compute_loss"

BCO_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class BCOConfig:
        output_dir: str = ""
        beta: float = 0.1
        gradient_accumulation_steps: int = 1
"""

BCO_TRAINER = """
    import torch
    from torch.nn.functional import logsigmoid
    from trl.trainer.kto_trainer import KTOTrainer

    class BCOTrainer(KTOTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            rewards = self.args.beta * self._ratios(inputs)
            self.running.update(rewards.detach().mean())
            gaps = torch.where(inputs["label"], rewards - self.running.mean, self.running.mean - rewards)
            return -logsigmoid(gaps).mean()  # def tokenize_row
"""

ORPO_CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class ORPOConfig:
        output_dir: str = ""
        beta: float = 0.1
        max_length: object = 1024
        truncation_mode: str = "keep_start"
        gradient_accumulation_steps: int = 1
"""

ORPO_TRAINER = """
    from torch.nn.functional import logsigmoid
    from trl.trainer.dpo_trainer import DPOTrainer

    class ORPOTrainer(DPOTrainer):
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, None, args, train_dataset, processing_class)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            tokens = inputs["completion_mask"][:, 1:].sum(1)
            chosen, rejected = (self._scores(model, inputs) / tokens).chunk(2)
            likelihood = (chosen * tokens[: len(chosen)]).sum() / {tokens}
            return -likelihood - self.args.beta * logsigmoid(chosen - rejected).mean()  # def tokenize_row
"""

LOG = """
        def log(self, logs):
            logs.update({n: sum(x) / len(x) for n, x in self._metrics["train"].items()})
"""

#: Place in the specimen of DPO -> what is there instead.
CHANGES = {
    "self.args.beta * chosen.mean().item()": "self.args.beta * {chosen}",
    "self.args.beta * (chosen - rejected).mean().item()": "self.args.beta * {margins}",
    "ref = self._scores(self.ref_model, inputs)": 'ref = {ref} if "ref" in inputs else self._scores('
    "self.ref_model, inputs)",
    '"input_ids": pad_sequence(ids': '**self.stored(examples), "input_ids": pad_sequence(ids',
    "    class DPOTrainer(Trainer):": """
        def stored(self, examples):
            names = ("ref_chosen_logps", "ref_rejected_logps")
            known = names[0] in examples[0]
            return {"ref": torch.tensor([one[name] for name in names for one in examples])} if known else {}

    class DPOTrainer(Trainer):""",
}

#: Place -> what stands there in a sound tree.
SOUND = {
    "chosen": "self.accelerator.gather_for_metrics(chosen.detach()).mean().item()",
    "margins": "self.accelerator.gather_for_metrics((chosen - rejected).detach()).mean().item()",
    "ref": 'inputs["ref"]',
    "steps": "self.current_gradient_accumulation_steps",
    "tokens": "tokens[: len(chosen)].sum()",
    "rewards": "(beta * ratios[rows]).tolist()",
}


def _load(loads: Loads, **choices: str) -> Target:
    tree, parts = files(), SOUND | choices
    text = tree["trl/trainer/dpo_trainer.py"]
    for place, instead in CHANGES.items():
        assert place in text
        text = text.replace(place, instead)
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    tree["trl/trainer/dpo_trainer.py"] = text.rstrip() + "\n" + LOG
    config = tree["trl/trainer/dpo_config.py"]
    tree["trl/trainer/dpo_config.py"] = config.rstrip() + "\n        precompute_ref_log_probs: bool = False\n"
    base = tree["trl/trainer/base.py"].replace(SOUND["steps"], parts["steps"])
    device = 'device = torch.device("cpu")\n'
    tree["trl/trainer/base.py"] = base.replace(
        device, f"{device}        gather_for_metrics = staticmethod(torch.clone)\n"
    )
    orpo = ORPO_TRAINER.replace("{tokens}", parts["tokens"])
    tree |= {"trl/trainer/orpo_config.py": ORPO_CONFIG, "trl/trainer/orpo_trainer.py": orpo}
    tree |= {"trl/trainer/bco_config.py": BCO_CONFIG, "trl/trainer/bco_trainer.py": BCO_TRAINER}
    one, every = "append(beta * ratios[rows].mean().item())", f"extend({parts['rewards']})"
    assert one in tree["trl/trainer/kto_trainer.py"]
    tree["trl/trainer/kto_trainer.py"] = tree["trl/trainer/kto_trainer.py"].replace(one, every)
    return loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS})


def _bound(target: Target) -> dict[tuple[str, str], Boundary]:
    """(path, setting) to boundary, without KTO's over ranks."""
    modules = (bco, pair_accumulation, pair_ranks, precomputed)
    every = [b for module in modules for b in module.boundaries(target)]
    bound = {(b.path, setting): b for b in every if isinstance(b, Boundary) for setting in b.settings}
    return {place: b for place, b in bound.items() if place != (KTO, "logged over ranks")}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each form binds, and every column survives the round trip."""
    target = _load(loads)
    boundaries = _bound(target)
    assert set(boundaries) == {
        (DPO, "logged over ranks"),
        (DPO, "precomputed reference"),
        (BCO, "default"),
        (KTO, "logged over micro-batches"),
        (ORPO, "default, accumulated"),
    }
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "path", "setting", "choices"),
    [
        (MET005, DPO, "logged over ranks", {"chosen": "chosen.mean().item()"}),
        (REF001, DPO, "precomputed reference", {"ref": "self._scores(self.ref_model, inputs)"}),
        (SPL001, BCO, "default", {"steps": "1"}),
        (
            MET005,
            KTO,
            "logged over micro-batches",
            {"rewards": "[beta * x.mean().item() for x in [ratios[rows]] if len(x)]"},
        ),
        (SPL001, ORPO, "default, accumulated", {"tokens": "1"}),
    ],
)
def test_faults(loads: Loads, law: Law, path: str, setting: str, choices: dict[str, str], sound: bool) -> None:  # noqa: PLR0913 - parametrised
    """Numbers are those of all ranks, stored references are used, and a micro-batch is a share of the step."""
    target = _load(loads, **({} if sound else choices))
    check_verdict(law, _bound(target)[path, setting], setting, target, found=not sound)
