"""TRL's sampling from models with options of their own, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, judged_at, the_bound
from adapters.trl_pairs_specimen import filled
from adapters.trl_self_play_specimen import overlay
from rl_sentinel.adapters.trl import FRAMEWORK, generation_defaults
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class OnlineDPOConfig:
        output_dir: str = ""
        temperature: float = 0.9
        top_p: float = 1.0
        top_k: object = None
        gradient_accumulation_steps: int = 1
"""

TRAINER = """
    from types import SimpleNamespace

    from transformers import GenerationConfig

    class OnlineDPOTrainer:
        def __init__(self, model, ref_model, args, train_dataset, processing_class, reward_model):
            self.model, self.args, self.train_dataset = model, args, train_dataset
            self.accelerator = SimpleNamespace(gradient_accumulation_steps=1)
            self.data_collator = lambda rows: {"prompt": [row["prompt"] for row in rows]}
            self.own = {"temperature": args.temperature, "top_p": args.top_p, "top_k": args.top_k or 0{minimum}}

        def training_step(self, model, inputs, num_items_in_batch=None):
            config, of_model = GenerationConfig(**self.own), model.generation_config
            model.generation_config = {used}
            try:
                model.generate(input_ids=None, generation_config=config)
            finally:
                model.generation_config = of_model
"""

#: What transformers does: an option that has its global default is replaced by the model's.
GENERATION = """

    class GenerationConfig:
        DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "repetition_penalty": 1.0, "min_new_tokens": None}

        def __init__(self, **options):
            self.__dict__.update({**self.DEFAULTS, **options})

        def update(self, **options):
            self.__dict__.update(options)

        def to_dict(self):
            return dict(self.__dict__)

    def _prepare_generation_config(self, config):
        default, own = GenerationConfig().to_dict(), self.generation_config.to_dict()
        options = config.to_dict()
        replaced = {n: own[n] for n, value in options.items() if value == default.get(n) and own[n] != value}
        return GenerationConfig(**{**options, **replaced}), {}

    LlamaForCausalLM._prepare_generation_config = _prepare_generation_config
    LlamaForCausalLM.generation_config = property(
        lambda self: self.__dict__.setdefault("options", GenerationConfig()),
        lambda self, options: self.__dict__.update(options=options),
    )
"""

SOUND = {"minimum": "", "used": "config"}


@pytest.mark.parametrize(
    ("broken", "lost"),
    [({}, None), ({"used": "of_model"}, "temperature"), ({"minimum": ', "min_new_tokens": 64'}, "min_new_tokens")],
)
def test_options_of_the_model_do_not_replace_those_of_the_trainer(
    loads: Loads, broken: dict[str, str], lost: str | None
) -> None:
    """The model's temperature in place of the trainer's; and responses that cannot end before a minimum."""
    tree = {"trl/__init__.py": "", "trl/trainer/online_dpo_config.py": CONFIG}
    tree |= {"trl/trainer/online_dpo_trainer.py": filled(TRAINER, {**SOUND, **broken})}
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": overlay()["transformers.py"] + GENERATION})
    boundary = the_bound(generation_defaults.boundaries(target))
    (setting,) = boundary.settings
    judgement = judged_at(CFG004, boundary, setting, target)
    assert judgement.tried > 0
    assert (judgement.found is None) is (lost is None)
    assert lost is None or lost in str(judgement.found)
