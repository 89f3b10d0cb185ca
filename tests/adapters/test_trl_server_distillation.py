"""TRL's distillation from a teacher on a server, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls, check_round_trips
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, server_distillation, weighted_distillation
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.degenerate_batch_not_finite import LAW as DEG001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001
from rl_sentinel.laws.row_order_matters import LAW as PRM001

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
            sampled, beta = inputs["completion_ids"].unsqueeze(2), self.beta
            support = [(words, top)][: beta < 1] + [(sampled, own.unsqueeze(2))][: beta > 0]
            words, teacher = (torch.cat(parts, 2) for parts in zip(*support))
            again = torch.zeros_like(words).bool()
            again[:, :, 1:] = (words[:, :, 1:] == words[:, :, :1]) & (beta > 0)
            student, teacher = student.gather(2, words).masked_fill(again, -99), teacher.masked_fill(again, -99)
            if {tail}:
                student, teacher = (torch.cat([x, self.rest(x)], 2) for x in (student, teacher))
            else:
                student, teacher = student - student.logsumexp(2, keepdim=True), {few}
            kl = lambda one, other, weight: (weight.exp() * (one - other)).sum(2)
            mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
            if beta in (0, 1):
                tokens = kl(student, teacher, student) if beta else kl(teacher, student, {weight})
            else:
                tokens = beta * kl(teacher, mixed, teacher) + (1 - beta) * kl(student, mixed, student)
            return tokens[mask].sum() / mask.sum()

        def rest(self, few):
            return torch.log(-torch.expm1(few.logsumexp(2, keepdim=True).clamp(max=-1e-7)))
"""

#: A trainer that is its own teacher, on the server that samples.
ITSELF = """
    import torch

    class SDFTTrainer:
        def _compute_self_distillation_loss(self, model, inputs):
            raise RuntimeError("the teacher is on the server")

        def _compute_server_distillation_loss(self, model, inputs):
            mask, width = inputs["completion_mask"], inputs["completion_ids"].shape[1]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            attended = torch.cat([inputs["prompt_mask"], mask], 1)
            logits = model(input_ids=ids, attention_mask=attended, logits_to_keep=width + 1).logits[:, :-1]
            before = inputs["teacher_input_ids"].shape[1] - width
            rows = [r[:n] for r, n in zip(inputs["teacher_input_ids"].tolist(), ASKED.tolist())]
            asked = self.teacher_client.get_sequence_logprobs(rows, [before] * len(rows), self.args.distillation_topk)
            most = self.args.distillation_topk
            words, teacher = torch.zeros(len(ids), width, most).long(), torch.zeros(len(ids), width, most)
            for row, n in enumerate(mask.sum(1).tolist()):
                words[row, :n] = torch.tensor(asked["logprob_token_ids"][row][:n]).view(n, most)
                teacher[row, :n] = torch.tensor(asked["logprobs"][row][:n]).view(n, most)
            student, alpha = logits.log_softmax(-1).gather(2, WORDS), self.args.distillation_alpha
            mixed = (alpha * teacher.exp() + (1 - alpha) * student.exp()).log()
            kl = lambda one: (one.exp() * (one - mixed)).sum(-1)
            tokens = alpha * kl(teacher) + (1 - alpha) * kl(student)
            return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss = self._compute_server_distillation_loss(model, inputs)
            return loss / self.current_gradient_accumulation_steps
"""

#: The same trainer with an objective on the sampled tokens.
WEIGHTED = """
        def _compute_iw_opd_loss(self, student, teacher, sampled, mask, count):
            gain = torch.where(mask, teacher - sampled, 0.0).detach()
            before = gain.abs().cumsum(1) - gain.abs()
            share = before / {total}.clamp(min=self.iw_opd_epsilon)
            weight = (1 + self.iw_opd_gamma * (1 - share)).detach()
            self._metrics["train"]["iw_opd/mean_advantage"].append((weight * gain){among}.mean().item())
            self._metrics["train"]["iw_opd/mean_abs_advantage"].append(gain.abs(){among}.mean().item())
            self._metrics["train"]["iw_opd/min_weight"].append(weight{least}.min().item())
            return -torch.where(mask, student * weight * gain, 0.0).sum() / {count}

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            if self.distillation_objective == "jsd":
                return self.former_loss(model, inputs)
            mask, ids, width = inputs["completion_mask"].bool(), inputs["input_ids"], inputs["completion_ids"].shape[1]
            logits = model(input_ids=ids, attention_mask=inputs["attention_mask"]).logits[:, :-1][:, -width:]
            chosen = logits.log_softmax(-1).gather(2, ids[:, -width:].unsqueeze(2)).squeeze(2)
            own, _, _ = self._get_teacher_token_logprobs_from_server(inputs)
            sampled = inputs["rollout_logprobs"][:, -width:]
            return self._compute_iw_opd_loss(chosen, own.masked_fill(~mask, 0.0), sampled, mask, num_items_in_batch)
"""

SOUND = {
    "fills": "True",
    "weight": "teacher",
    "tail": "self.loss_add_tail",
    "few": "teacher - teacher.logsumexp(2, keepdim=True)",
    "total": "gain.abs().sum(1, keepdim=True)",
    "count": "count",
    "among": "[mask]",
    "least": "[mask]",
}

LOGGED, MEANS = "logged, importance-weighted", "logged, no weights"

#: The tokens that are sent to the server, and the words whose share is compared.
ASKED, WORDS = 'inputs["teacher_attention_mask"].sum(1)', "words"


def _of_itself(loads: Loads, asked: str = ASKED, words: str = WORDS) -> tuple[Target, dict[str, Boundary]]:
    source = ITSELF.replace("ASKED", asked).replace("WORDS", words)
    target = loads(FRAMEWORK, {**files(), "trl/experimental/sdft/sdft_trainer.py": source}, overlay())
    return target, by_setting(server_distillation.boundaries(target))


def _bound(loads: Loads, objective: str = "", **choices: str) -> tuple[Target, dict[str, Boundary]]:
    source = TRAINER.replace("def compute_loss", "def former_loss") + objective if objective else TRAINER
    source = filled(source, SOUND | choices)
    place = "trl/experimental/server_distillation/server_distillation_trainer.py"
    target = loads(FRAMEWORK, {**files(), place: source}, overlay())
    every = [*server_distillation.boundaries(target), *weighted_distillation.boundaries(target)]
    return target, by_setting(every)


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both ends of the mixture bind, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == list(server_distillation.SHARES)
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (DEG001, "server, beta 1", {"fills": "False"}),
        (REF001, "server, beta 0", {"weight": "student"}),
        (REF001, "server, beta 0, top 1", {"tail": "False"}),
        (REF001, "server, beta 0, top 2 without tail", {"few": "teacher"}),
        (REF001, "server, beta 0.25", {"tail": "False"}),
        (REF001, "server, beta 0.25 without tail", {"few": "teacher.logsumexp(2, keepdim=True) - teacher"}),
        (REF001, "server, beta 1", {"tail": "False"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], sound: bool) -> None:
    """Log-probs of padding make a gradient NaN; wrong weights, the rest of the words, and shares of few words."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "choices"),
    [
        (SPL001, {"count": "mask.sum()"}),
        (PRM001, {"total": "gain.abs().sum(1)"}),
        (SPL001, {"total": "gain.abs().sum()"}),
    ],
)
def test_weights_of_sampled_tokens(loads: Loads, law: Law, choices: dict[str, str], *, sound: bool) -> None:
    """A mean over a micro-batch, weights of another row, and weights that depend on the other rows."""
    target, boundaries = _bound(loads, objective=WEIGHTED, **({} if sound else choices))
    assert list(boundaries) == [*server_distillation.SHARES, "server, importance-weighted", LOGGED, MEANS]
    boundary = boundaries["server, importance-weighted"]
    check_round_trips(target, [boundary])
    check_verdict(law, boundary, "server, importance-weighted", target, found=not sound)


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize("choices", [{"among": ""}, {"least": ""}])
def test_metrics_of_sampled_tokens(loads: Loads, choices: dict[str, str], *, sound: bool) -> None:
    """Means and extremes over the trained tokens, whatever the padding beside them."""
    target, boundaries = _bound(loads, objective=WEIGHTED, **({} if sound else choices))
    check_calls(target, [boundaries[LOGGED]])
    check_verdict(PAD001, boundaries[LOGGED], LOGGED, target, found=not sound)


@pytest.mark.parametrize("among", ["[mask]", ""])
def test_means_of_log_ratios(loads: Loads, among: str) -> None:
    """Means over the trained tokens, not over all places."""
    target, boundaries = _bound(loads, objective=WEIGHTED, among=among)
    check_calls(target, [boundaries[MEANS]])
    check_verdict(MET001, boundaries[MEANS], MEANS, target, found=among != "[mask]")


def test_a_teacher_of_itself_answers_and_reads_back(loads: Loads) -> None:
    """Each mixture binds, and every column survives the round trip."""
    target, boundaries = _of_itself(loads)
    assert list(boundaries) == list(server_distillation.ALPHAS)
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("words", [WORDS, "torch.arange(most).expand_as(words)"])
def test_words_of_a_teacher_of_itself(loads: Loads, words: str) -> None:
    """The student's share of a word is compared with the teacher's share of that word."""
    target, boundaries = _of_itself(loads, words=words)
    check_verdict(REF001, boundaries["topk_logits, alpha 0.1"], "topk_logits, alpha 0.1", target, found=words != WORDS)
