"""TRL's log-probs and entropies of completions from logits, on a specimen of their call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls, check_round_trips
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, log_probs
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

COMPUTES = """
            logits = model(input_ids=ids, attention_mask={attention}, logits_to_keep=logits_to_keep + 1).logits
            known = (logits[:, :-1] / {temperature}).log_softmax(-1)
            chosen = known.gather(2, ids[:, -logits_to_keep:].unsqueeze(2)).squeeze(2)
            return chosen, -(known.exp() * known).sum(-1)
"""

SOUND = {"attention": "attention", "temperature": "self.args.temperature"}


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    source, tree = filled(COMPUTES, SOUND | choices), files()
    tree["trl/trainer/base.py"] = tree["trl/trainer/base.py"].replace(
        '\n            raise RuntimeError("a model runs here")\n', source
    )
    for name in ("grpo", "rloo"):
        tree[f"trl/trainer/{name}_config.py"] += "        temperature: float = 1.0\n"
    target = loads(FRAMEWORK, tree, overlay())
    every = [one for one in log_probs.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.split(".")[2], setting): one for one in every for setting in one.settings}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both numbers of both trainers bind, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    owners = ("grpo_trainer", "rloo_trainer")
    assert set(boundaries) == {(owner, name) for owner in owners for name in ("logprob", "entropy")}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize("choices", [{"attention": "torch.ones_like(ids)"}, {"temperature": "1.5"}])
def test_faults(loads: Loads, choices: dict[str, str], *, sound: bool) -> None:
    """Padding is not attended to, and the temperature is the configured one."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    for setting in ("logprob", "entropy"):
        check_verdict(REF001, boundaries["grpo_trainer", setting], setting, target, found=not sound)


#: Log-probs that a trainer keeps for several optimizer steps.
SAMPLES = """
    import torch

    class SDFTTrainer:
        def _compute_rollout_logps(self, prompt_ids, prompt_mask, completion_ids, completion_mask):
            if self.args.gradient_accumulation_steps % (self.args.steps_per_generation * self.num_iterations) == 0:
                return None
            ids = torch.cat([prompt_ids, completion_ids], 1)
            attention = torch.cat([prompt_mask, completion_mask], 1)
            logits = self.model(input_ids=ids, attention_mask=attention).logits[:, SHIFT][:, -completion_ids.shape[1] :]
            return (logits / self.temperature).log_softmax(-1).gather(2, completion_ids.unsqueeze(2)).squeeze(2)
"""


@pytest.mark.parametrize(("shift", "sound"), [(":-1", True), ("1:", False)])
def test_log_probs_of_samples(loads: Loads, shift: str, sound: bool) -> None:
    """A token's log-prob is that of the logits before it."""
    tree = {**files(), "trl/experimental/sdft/sdft_trainer.py": SAMPLES.replace("SHIFT", shift)}
    target = loads(FRAMEWORK, tree, overlay())
    every = [one for one in log_probs.boundaries(target) if isinstance(one, Boundary)]
    (boundary,) = (one for one in every if one.path.endswith("_compute_rollout_logps"))
    check_round_trips(target, [boundary])
    check_verdict(REF001, boundary, "logprob", target, found=not sound)
