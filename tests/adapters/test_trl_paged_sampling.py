"""TRL's rollouts with the batched generation of transformers, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.trl_self_play_specimen import overlay
from adapters.trl_specimen import CONFIG, filled
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.paged_sampling import boundaries
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

TRAINER = """
    from collections import defaultdict
    from types import SimpleNamespace

    import torch

    class GRPOTrainer:  # _metrics: {"train": defaultdict, "eval": defaultdict}
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.reward_funcs, self.args = model, reward_funcs, args
            self.processing_class = processing_class
            self.ref_model, self.beta, self.use_vllm = None, 0.0, False
            self.state, self.accelerator = SimpleNamespace(global_step=0), SimpleNamespace()
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

        def _get_per_token_logps_and_entropies(self, model, ids, attention, logits_to_keep):
            raise RuntimeError("a model runs here")

        def padded(self, rows, left):
            width = max(map(len, rows))
            fill = [[0] * (width - len(row)) for row in rows]
            return torch.tensor([[*f, *row] if left else [*row, *f] for f, row in zip(fill, rows)])

        def _generate_and_score_completions(self, inputs):
            texts = [row["prompt"] for row in inputs]
            prompts = [self.processing_class(text, add_special_tokens=False)["input_ids"] for text in texts]
            mask = self.padded([[1] * len(row) for row in prompts], True)
            results = self.model.generate_batch(prompts)
            completions = [result.generated_tokens for result in {ordered}]
            rewards_per_func = torch.tensor(self.reward_funcs[0](prompts=texts, completions=completions))
            groups = rewards_per_func.view(-1, self.num_generations)
            centered = (groups - groups.mean(1, keepdim=True)).flatten()
            ids = {"prompt_ids": self.padded(prompts, {left}), "completion_ids": self.padded(completions, False)}
            return {**ids, "prompt_mask": mask, "advantages": centered}
"""

MODEL = """

    def generate_batch(self, inputs):
        {order}

    LlamaForCausalLM.generate_batch = generate_batch
"""

SOUND = {"ordered": "(results[name] for name in sorted(results, key=lambda n: int(n[4:])))", "left": "True"}
FINISHED, REORDERED = "return results", "return reordered"


def _bound(loads: Loads, parts: dict[str, str], order: str = FINISHED) -> tuple[Target, dict[str, Boundary]]:
    """The target, and setting to boundary."""
    config = CONFIG.format(name="GRPOConfig") + "        use_transformers_paged: bool = False\n"
    tree = {"trl/__init__.py": "", "trl/trainer/grpo_config.py": config}
    tree |= {"trl/trainer/grpo_trainer.py": filled(TRAINER, {**SOUND, **parts})}
    packages = overlay()
    packages["transformers.py"] += filled(MODEL, {"order": order})
    target = loads(FRAMEWORK, tree, packages)
    return target, {n: one for one in boundaries(target) if isinstance(one, Boundary) for n in one.settings}


@pytest.mark.parametrize(("left", "found"), [("True", False), ("False", True)])
def test_prompts_are_where_their_mask_is(loads: Loads, left: str, found: bool) -> None:
    """Prompts that are padded on the other side than their mask have padding in place of tokens."""
    setting = "batched generation, prompts"
    target, bound = _bound(loads, {"left": left})
    check_verdict(DAT001, bound[setting], setting, target, found=found)


@pytest.mark.parametrize(
    ("ordered", "order", "found"),
    [
        (SOUND["ordered"], FINISHED, False),
        ("results.values()", FINISHED, True),
        ("results.values()", REORDERED, False),
    ],
)
def test_completions_answer_their_prompt(loads: Loads, ordered: str, order: str, found: bool) -> None:
    """Results that come as requests finish are not in the order of the prompts."""
    setting = "batched generation, completions"
    target, bound = _bound(loads, {"ordered": ordered}, order)
    check_verdict(DAT001, bound[setting], setting, target, found=found)


def test_release_without_the_option(loads: Loads) -> None:
    """Where models have no such method, there is no boundary."""
    tree = {"trl/__init__.py": "", "trl/trainer/grpo_config.py": CONFIG.format(name="GRPOConfig")}
    tree |= {"trl/trainer/grpo_trainer.py": filled(TRAINER, SOUND)}
    assert list(boundaries(loads(FRAMEWORK, tree, overlay()))) == []
