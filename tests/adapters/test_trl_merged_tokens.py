"""GOLD's merging of tokens that are one for the other tokenizer, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, judged_at, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, merged_tokens
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

#: The first token's distribution, times the probability of each later token.
FIRST = """
    import torch

    class ULDLoss:
        def __init__(self, config):
            self.config = config

        def _merge_probabilities_with_alignment_groups(self, probs, alignment_groups, token_ids=None):
            rows = []
            for group in alignment_groups:
                later = [probs[place, token_ids[{place}]] for place in group[1:]]
                rows.append(probs[group[0]] * torch.stack([*later, torch.ones(())]).prod())
            return torch.stack(rows)
"""

#: One of two strategies.
SEVERAL = """
    import torch

    class ULDLoss:
        def __init__(self, config):
            self.token_merge_strategy = config.uld_token_merge_strategy

        def _merge_probabilities_with_alignment_groups(self, probs, alignment_groups, token_ids=None):
            rows = []
            for group in alignment_groups:
                whole = {whole} if self.token_merge_strategy == "bayesian" else group[0]
                known = [probs[place, token_ids[place]] for place in group if place != whole]
                rows.append(probs[whole] * torch.stack([*known, torch.ones(())]).prod())
            return torch.stack(rows)
"""

#: Without the sampled tokens: a product of whole distributions.
PRODUCT = """
    import torch

    class ULDLoss:
        def __init__(self, config):
            self.config = config

        def _merge_probabilities_with_alignment_groups(self, probs, alignment_groups):
            return torch.stack([probs[group].log().sum(0).softmax(-1) for group in alignment_groups])
"""


def _bound(loads: Loads, text: str) -> tuple[Target, Boundary]:
    target = loads(FRAMEWORK, {"trl/experimental/gold/gold_trainer.py": text}, overlay())
    return target, the_only(merged_tokens.boundaries(target))


@pytest.mark.parametrize("text", [FIRST.replace("{place}", "place"), SEVERAL.replace("{whole}", "group[-1]"), PRODUCT])
def test_answers_and_reads_back(loads: Loads, text: str) -> None:
    target, boundary = _bound(loads, text)
    assert len(boundary.settings) == (2 if "bayesian" in text else 1)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (FIRST.replace("{place}", "place"), set()),
        (FIRST.replace("{place}", "group[0]"), {"observed"}),  # the probability of the first token again
        (SEVERAL.replace("{whole}", "group[-1]"), set()),
        (SEVERAL.replace("{whole}", "group[0]"), {"bayesian"}),  # the other strategy
        (PRODUCT, {"observed"}),
    ],
)
def test_faults(loads: Loads, text: str, broken: set[str]) -> None:
    """The actual tokens have their probability by the chain rule, with each strategy."""
    target, boundary = _bound(loads, text)
    found = set()
    for setting, values in boundary.settings.items():
        judgement = judged_at(REF001, boundary, setting, target)
        assert judgement.tried > 0
        if judgement.found is not None:
            found.add(values["strategy"])
    assert found == broken
