"""slime's packed sequences and their log-probs, on call shapes of its FSDP backend in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.slime_specimen import files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.fsdp import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PACKING = """
    import torch

    def pack_sequences(
        tokens, loss_masks, rewards, raw_rewards, response_lengths, advantages, returns, rollout_log_probs, num_packs=1
    ):
        order = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
        parts = []
        for part in range(num_packs):
            rows = order[part::num_packs]
            lists = {"raw_rewards": raw_rewards, "rewards": rewards, "response_lengths": response_lengths}
            wide = {"tokens": tokens, "loss_masks": loss_masks, "advantages": advantages, "returns": returns}
            wide["rollout_log_probs"] = rollout_log_probs
            packed = {key: torch.tensor(sum((x[row] for row in rows), [])) for key, x in wide.items()}
            ends = torch.tensor([0, *(len(tokens[row]) for row in rows)]).cumsum(0)
            parts += [packed | {k: [x[row] for row in rows] for k, x in lists.items()} | {"ends": ends}] if rows else []
        return parts

    def unpack_sequences(part):
        sizes, ends, made = part["response_lengths"], part["ends"].tolist(), []
        for n, size in enumerate(sizes):
            one = {key: part[key][n] for key in ("raw_rewards", "rewards", "response_lengths")}
            one["tokens"] = part["tokens"][ends[n]:ends[n + 1]]
            before = sum(sizes[:n]) if FIXED else 0
            for key in ("loss_masks", "advantages", "returns", "rollout_log_probs"):
                one[key] = part[key][before:before + size]
            for key in ("log_probs", "ref_log_probs"):
                if key in part:
                    one[key] = part[key][ends[n + 1] - 1 - size:ends[n + 1] - 1]
            made.append(one)
        return made
"""

ACTOR = """
    import torch

    class FSDPTrainRayActor:
        def compute_log_prob(self, model_tag, packed_batches, store_prefix=""):
            model = self.ref_model.cuda() if model_tag == "ref" and SWITCHES else self.model
            for part in packed_batches:
                logits = model(input_ids=part["tokens"].unsqueeze(0)).logits.squeeze(0)
                logits = logits / self.args.rollout_temperature if FIXED else logits
                scores = logits[:-1].log_softmax(-1).gather(-1, part["tokens"][1:].unsqueeze(-1)).squeeze(-1)
                part[f"{store_prefix}log_probs"] = scores
"""


def _bound(loads: Loads, *, fixed: bool, switches: bool = True) -> tuple[Target, dict[str, Boundary]]:
    backend = "slime/backends/fsdp_utils"
    tree = {f"{backend}/data_packing.py": PACKING.replace("FIXED", str(fixed))}
    tree[f"{backend}/actor.py"] = ACTOR.replace("FIXED", str(fixed)).replace("SWITCHES", str(switches))
    target = loads(FRAMEWORK, files(fixed=fixed) | tree)
    return target, {b.path.rpartition(".")[2]: b for b in boundaries(target) if isinstance(b, Boundary)}


@pytest.mark.parametrize("packs", [1, 2])
def test_samples_keep_their_columns(loads: Loads, packs: int) -> None:
    target, every = _bound(loads, fixed=True)
    columns = {"token": torch.tensor([[0, 1], [2, 0], [1, 1]]), "advantage": torch.tensor([[1.0, 2], [3, 0], [4, 5]])}
    mask = torch.tensor([[True, False], [True, False], [True, True]])
    batch = batch_of(mask, length=torch.tensor([2, 1, 2]), prompt_length=torch.tensor([1, 3, 2]), **columns)
    boundary = every["unpack_sequences"]
    values = execute(target, boundary, inputs_of(boundary, Case(batch, layout=Layout(micro_batches=packs)))).values
    assert values["sequences"].item() == 3
    for name in ("token", "advantage", "mask"):
        assert torch.equal(values[name], getattr(batch, name))


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_columns_of_another_sample(loads: Loads, fixed: bool, found: bool) -> None:
    target, every = _bound(loads, fixed=fixed)
    check_verdict(PLC004, every["unpack_sequences"], "default", target, found=found)


@pytest.mark.parametrize("law", [CFG001, REF001])
@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_temperature(loads: Loads, law: object, fixed: bool, found: bool) -> None:
    """Log-probs of the policy that samples are those at its temperature."""
    target, every = _bound(loads, fixed=fixed)
    check_verdict(law, every["compute_log_prob"], "other temperature", target, found=found)  # type: ignore[arg-type]


@pytest.mark.parametrize(("switches", "found"), [(True, False), (False, True)])
def test_log_probs_of_the_reference(loads: Loads, switches: bool, found: bool) -> None:
    """Log-probs under the reference are those of its own model."""
    target, every = _bound(loads, fixed=True, switches=switches)
    check_verdict(REF001, every["compute_log_prob"], "default", target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads, fixed=True)
    check_round_trips(target, every.values())


def test_without_the_backend(loads: Loads) -> None:
    assert list(boundaries(loads(FRAMEWORK, files(fixed=True)))) == []
