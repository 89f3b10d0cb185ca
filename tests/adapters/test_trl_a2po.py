"""TRL's A*-PO, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, a2po
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001

TRAINER = """
    def selective_log_softmax(logits, ids):
        raise RuntimeError("there is no vocabulary")

    class A2POTrainer:
        def _get_sequence_logps(self, model, input_ids, attention_mask, logits_to_keep):
            logits = model(input_ids=input_ids, attention_mask=attention_mask).logits[:, :-1][:, -logits_to_keep:]
            each = selective_log_softmax(logits, input_ids[:, -logits_to_keep:])
            return (each * MASK).sum(1)

        def compute_loss(self, model, inputs):
            names = ("input_ids", "attention_mask", "logits_to_keep")
            own = self._get_sequence_logps(model, *(inputs[name] for name in names))
            target = inputs["rewards"] SIGN inputs["v_star"]
            return ((self.args.beta2 * (own - inputs["ref_logps"]) - target) ** 2).mean()
"""

MASK = "attention_mask[:, -logits_to_keep:]"


def _bound(loads: Loads, mask: str = MASK, sign: str = "-") -> tuple[Target, Boundary]:
    source = TRAINER.replace("MASK", mask).replace("SIGN", sign)
    target = loads(FRAMEWORK, {"trl/experimental/a2po/a2po_trainer.py": source}, overlay())
    return target, the_only(a2po.boundaries(target))


def test_by_hand(loads: Loads) -> None:
    """Half of a log-ratio of 4 is 2, the advantage is 1 - 2 = -1; then 0 and 1: the mean of 9 and 1."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])
    batch = batch_of(
        torch.tensor([[True, True], [True, False]]),
        reward=torch.tensor([1.0, 1.0]),
        reward_baseline=torch.tensor([2.0, 0.0]),
        logprob=torch.tensor([[-1.0, -1.0], [-1.0, 0.0]]),
        ref_logprob=torch.tensor([[-3.0, -3.0], [-1.0, 0.0]]),
        length=torch.tensor([2, 1]),
    )
    assert outputs_of(target, boundary, "default", batch)["loss"].item() == 5


CASES: list[tuple[Law, dict[str, str]]] = [
    (REF001, {"sign": "+"}),
    (REF001, {"mask": "1"}),
]


@pytest.mark.parametrize(("law", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, broken: dict[str, str], found: bool) -> None:
    """A value that is added to the reward, and padding that counts."""
    target, boundary = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundary, "default", target, found=found)


#: How the trainer samples one completion for each prompt, and scores it.
SAMPLES = """
        def _prepare_inputs(self, inputs):
            texts = [example["prompt"] for example in inputs]
            ids = torch.tensor([[3 + int(text[1:])] for text in texts])
            whole = self.model.generate(input_ids=ids, generation_config=self.generation_config)
            done = whole[:, 1:] == self.eos_token_ids[0]
            mask = (done.cumsum(1) - done.int() == 0).int()
            attends = torch.cat([torch.ones_like(ids), {mask}], 1).int()
            (score,) = self.reward_funcs
            with torch.no_grad():
                ref = self._get_sequence_logps({ref}, whole, attends, mask.shape[1])
            return {
                "input_ids": whole,
                "attention_mask": attends,
                "logits_to_keep": mask.shape[1],
                "ref_logps": ref,
                "rewards": torch.tensor(score(prompts=texts, completions=[""] * len(texts))),
                "v_star": torch.tensor([self._optimal_values[{known}] for text in texts]),
            }

        def compute_loss"""

SAMPLED: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"mask": "mask * (1 - done.int())"}, True),
    ({"mask": "torch.ones_like(mask)"}, True),
    ({"known": "texts[0]"}, True),
]


@pytest.mark.parametrize(("choices", "found"), SAMPLED)
def test_sampled_completions(loads: Loads, choices: dict[str, str], found: bool) -> None:
    """The end token counts, padding does not, and each prompt has its own value."""
    samples = SAMPLES
    for name, code in {"mask": "mask", "ref": "self.ref_model", "known": "text", **choices}.items():
        samples = samples.replace("{" + name + "}", code)
    source = "\n    import torch\n" + TRAINER.replace("\n        def compute_loss", samples)
    source = source.replace("MASK", MASK).replace("SIGN", "-")
    target = loads(FRAMEWORK, {"trl/experimental/a2po/a2po_trainer.py": source}, overlay())
    _, boundary = a2po.boundaries(target)
    assert isinstance(boundary, Boundary)
    check_calls(target, [boundary])
    check_verdict(REF001, boundary, "sampled", target, found=found)
