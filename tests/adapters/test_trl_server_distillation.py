"""TRL's distillation from a teacher on a server, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import answering, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.trl_specimen import files, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, server_distillation
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.degenerate_batch_not_finite import LAW as DEG001
from rl_sentinel.laws.differs_from_reference import LAW as REF001

Loads = Callable[..., Target]

TRAINER = """
    import torch

    class ServerDistillationTrainer:
        def _get_teacher_token_logprobs_from_server(self, inputs):
            ids, mask = inputs["completion_ids"], inputs["completion_mask"]
            before = inputs["prompt_mask"].sum(1)
            rows = [[4] * n + row[:m] for n, row, m in zip(before.tolist(), ids.tolist(), mask.sum(1).tolist())]
            asked = self.teacher_client.get_sequence_logprobs(
                sequences=rows, prompt_lengths=before.tolist(), top_logprobs=self.loss_top_k
            )
            width, most = mask.shape[1], self.loss_top_k
            own, top = torch.full((len(ids), width), -torch.inf), torch.full((len(ids), width, most), -torch.inf)
            words = torch.zeros((len(ids), width, most), dtype=torch.int64)
            for row, found in enumerate(zip(asked["actual_logprobs"], asked["logprobs"], asked["logprob_token_ids"])):
                for place, numbers in zip((own[row].unsqueeze(1), top[row], words[row]), found):
                    if numbers:
                        place[: len(numbers)] = torch.tensor(numbers, dtype=place.dtype)
            return own, top, words

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            mask = inputs["completion_mask"].bool()
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
            student = model(input_ids=ids, attention_mask=attended).logits[:, :-1][:, -mask.shape[1] :].log_softmax(-1)
            own, top, words = self._get_teacher_token_logprobs_from_server(inputs)
            if {fills}:
                own, top = own.masked_fill(~mask, 0.0), top.masked_fill(~mask.unsqueeze(2), 0.0)
            if self.beta:
                chosen = student.gather(2, inputs["completion_ids"].unsqueeze(2)).squeeze(2)
                tokens = chosen.exp() * (chosen - own)
            else:
                tokens = ({weight}.exp() * (top - student.gather(2, words))).sum(2)
            return tokens[mask].sum() / mask.sum()
"""

SOUND = {"fills": "True", "weight": "top"}


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    source = TRAINER
    for name, part in (SOUND | choices).items():
        source = source.replace("{" + name + "}", part)
    place = "trl/experimental/server_distillation/server_distillation_trainer.py"
    target = loads(FRAMEWORK, {**files(), place: source}, overlay())
    made = [one for one in server_distillation.boundaries(target) if isinstance(one, Boundary)]
    return target, {next(iter(one.settings)): one for one in made}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both ends of the mixture bind, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == ["server, beta 0", "server, beta 1"]
    assert answering({(name, name): one for name, one in boundaries.items()}, target) == []
    check_round_trips(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (DEG001, "server, beta 1", {"fills": "False"}),
        (REF001, "server, beta 0", {"weight": "student.gather(2, words)"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], sound: bool) -> None:  # noqa: FBT001 - parametrised
    """No log-prob of padding makes the gradient of the weights NaN; the teacher's shares are the weights."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    judgement = judged_at(law, boundaries[setting], setting, target)
    assert judgement.tried > 0
    assert (judgement.found is None) is sound
