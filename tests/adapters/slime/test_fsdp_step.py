"""slime's training step on FSDP, on call shapes of that backend in words of our own."""

from collections.abc import Callable

import pytest
import torch

from adapters.checks import answering, judged_at, outputs_of
from adapters.kit.round_trip import check_round_trips
from adapters.slime.test_fsdp import PACKING
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK, fsdp_step
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

Loads = Callable[..., Target]

ACTOR = """
    import torch
    import torch.distributed as dist

    class tracking_utils:
        @staticmethod
        def log(args, numbers, step_key):
            raise RuntimeError("there is no tracker")

    def get_logprob_and_entropy(logits, target_tokens):
        raise RuntimeError("there is no vocabulary")

    class FSDPTrainRayActor:
        def _train_step(self, part, reported, number, ends):
            args = self.args
            logits = self.model(input_ids=part["tokens"].unsqueeze(0)).logits.squeeze(0)
            logprob, entropy = get_logprob_and_entropy(logits=logits, target_tokens=part["tokens"])
            stops, sizes = part["cu_seqlens"].tolist()[1:], part["response_lengths"]
            cut = lambda x: torch.cat([x[end - 1 - size:end - 1] for end, size in zip(stops, sizes)])
            own, old = cut(logprob), cut(part["log_probs"])

            def mean(x):
                parts = zip(x.split(sizes), part["loss_masks"].split(sizes))
                return sum((one * mask).sum() / (COUNT) for one, mask in parts)

            ratio, advantage = (own - old).exp(), part["advantages"]
            near = ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
            loss = mean(torch.maximum(-advantage * ratio, -advantage * near))
            clipped = mean(((-advantage * near) > (-advantage * ratio)).float())
            if args.use_kl_loss:
                gap = cut(part["ref_log_probs"]) - own
                loss = loss + args.kl_loss_coef * mean(gap.exp() - 1 - gap)
            (loss * self.dp_size / args.global_batch_size).backward()
            found = {"loss": loss.detach(), "pg_clipfrac": LOGGED, "entropy_loss": mean(cut(entropy))}
            for name, x in found.items():
                reported.setdefault(name, []).append(x)
            if number + 1 in ends:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.clip_grad)
                self.optimizer.step()
                every = [None]
                dist.all_gather_object(every, {name: sum(x) for name, x in reported.items()}, group=self.dp_group)
                numbers = {f"train/{name}": float(x) / (SIZE) for name, x in every[0].items()}
                tracking_utils.log(args, numbers, step_key="train/step")
"""

COUNT = "mask.sum().clamp(min=1)"
LOGGED = "clipped"
SIZE = "args.global_batch_size"


def _bound(
    loads: Loads, count: str = COUNT, logged: str = LOGGED, size: str = SIZE
) -> tuple[Target, dict[str, Boundary]]:
    backend = "slime/backends/fsdp_utils"
    actor = ACTOR.replace("COUNT", count).replace("LOGGED", logged).replace("SIZE", size)
    tree = {
        f"{backend}/data_packing.py": PACKING.replace("FIXED", "True").replace('"ends"', '"cu_seqlens"'),
        f"{backend}/actor.py": actor,
    }
    target = loads(FRAMEWORK, files(fixed=True) | tree)
    made = [one for one in fsdp_step.boundaries(target) if isinstance(one, Boundary)]
    return target, {setting: one for one in made for setting in one.settings}


def test_by_hand(loads: Loads) -> None:
    """The mean of two samples, of which one has a token that does not train."""
    target, boundaries = _bound(loads)
    assert answering({("loss", setting): one for setting, one in boundaries.items()}, target) == []
    check_round_trips(target, boundaries.values())
    mask = torch.tensor([[True, False], [True, True]])
    columns = {"advantage": torch.tensor([[1.0, 50.0], [2.0, 4.0]]), "entropy": torch.tensor([[1.0, 9.0], [2.0, 4.0]])}
    batch = batch_of(mask, length=torch.tensor([2, 2]), prompt_length=torch.tensor([1, 3]), **columns)
    answer = outputs_of(target, boundaries["grpo"], "grpo", batch)
    assert answer["loss"].item() == pytest.approx(-2)
    assert answer["train/entropy_loss"].item() == pytest.approx(2)


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (REF001, "grpo, KL", {"count": "len(mask)"}),
    (MET001, "grpo", {"logged": "loss.detach()"}),
    (SPL001, "grpo", {"size": "len(sizes)"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(
    loads: Loads,
    law: Law,
    setting: str,
    broken: dict[str, str],
    found: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Means over all tokens, another number under the name, and the samples of a pack as those of the step."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    judgement = judged_at(law, boundaries[setting], setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found
