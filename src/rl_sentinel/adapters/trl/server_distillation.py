"""TRL's distillation from a teacher on a server. The server returns log-probs of the most likely tokens only."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import self_distillation
from rl_sentinel.adapters.trl.arguments import completions, trains_whole_completions
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.self_distillation import Model
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Inputs

TRAINERS = (
    "trl.experimental.server_distillation.server_distillation_trainer.ServerDistillationTrainer",
    "trl.experimental.distillation.distillation_trainer.DistillationTrainer",
    "trl.experimental.iw_opd.iw_opd_trainer.IWOPDTrainer",
)

#: The trainer's method that requests log-probs from the server.
ASKS = "_get_teacher_token_logprobs_from_server"

_PER_TOKEN = claims(
    "_reduce_divergence_loss, 'batchmean': divided by the tokens with a label", aggregation="token-mean"
)
_SUPPORT = _PER_TOKEN | claims(
    "server_distillation_config.py, loss_top_k and loss_add_tail: the support of the divergence, and one more bucket "
    "for the probability outside of it; reverse_kl_top_1_mode: the forward KL is on the teacher's top-1 token, the "
    "inverse one on the sampled token",
    algorithm="generalized jsd of a support",
)

#: Name -> teacher's share, number of tokens from the server, whether all others count as one token; and claims.
SHARES: Mapping[str, tuple[Settings, Claims]] = {
    "server, beta 0": (
        {"mixture": 0.0, "likeliest": VOCABULARY, "tail": False},
        _PER_TOKEN
        | claims("_compute_server_forward_kl_loss: KL of the teacher on its support", algorithm="generalized jsd"),
    ),
    "server, beta 0, top 1": ({"mixture": 0.0, "likeliest": 1, "tail": True}, _SUPPORT),
    "server, beta 0, top 2 without tail": ({"mixture": 0.0, "likeliest": 2, "tail": False}, _SUPPORT),
    "server, beta 0.25": ({"mixture": 0.25, "likeliest": 1, "tail": True}, _SUPPORT),
    "server, beta 0.25 without tail": ({"mixture": 0.25, "likeliest": 1, "tail": False}, _SUPPORT),
    "server, beta 1": ({"mixture": 1.0, "likeliest": 1, "tail": True}, _SUPPORT),
}

#: Least probability of a token, and least difference of two logits of the teacher.
LEAST_REST = 1e-3

#: The settings of a trainer whose teacher is its student: all tokens, so that the rest is empty.
ALPHAS: Mapping[str, Settings] = {
    "topk_logits": {"mixture": 0.5},
    "topk_logits, alpha 0.1": {"mixture": 0.1},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss of each trainer that can request log-probs from a server."""
    for path in TRAINERS:
        entry = f"{path}.compute_loss"
        if not target.has(f"{path}.{ASKS}") or not target.has(entry):
            continue
        if why := target.fails(path):
            yield Unbound(entry, "aggregate", why)
            continue
        yield from bindable(target, *(_loss(path, name) for name in SHARES))
    for path in self_distillation.TRAINERS:
        if target.has(f"{path}._compute_server_distillation_loss") and not target.fails(path):
            yield from bindable(target, *(_of_itself(path, name, alpha) for name, alpha in ALPHAS.items()))


def _of_itself(path: str, name: str, alpha: Settings) -> Boundary:
    return self_distillation.loss(path, name, alpha, make_self_distiller, Teacher)


class Teacher:
    """A fake client of the teacher server, which returns log-probs of the completions of a batch."""

    #: The attribute of a trainer that contains the client.
    place = "teacher_client"

    def __init__(self, logits: Tensor) -> None:
        """Store ``[B, T, V]`` logits."""
        self.logits = logits.detach()

    def get_sequence_logprobs(
        self, sequences: list[list[int]], prompt_lengths: list[int], top_logprobs: int, temperature: float = 1.0
    ) -> dict[str, Any]:
        """For each token of a completion: its log-prob, and the most likely tokens with their log-probs."""
        found: dict[str, list[Any]] = {"actual_logprobs": [], "logprobs": [], "logprob_token_ids": []}
        for row, (ids, before) in enumerate(zip(sequences, prompt_lengths, strict=True)):
            known = (self.logits[row, : len(ids) - before] / temperature).log_softmax(-1)
            most = known.topk(top_logprobs, -1)
            own = known.gather(1, torch.tensor(ids[before:], dtype=torch.int64).unsqueeze(1))
            found["actual_logprobs"].append(own.tolist())
            found["logprobs"].append(most.values.tolist())
            found["logprob_token_ids"].append(most.indices.tolist())
        return found


def make_distiller(kind: Any, beta: float, likeliest: int, tail: bool, teacher: Teacher) -> Any:  # noqa: ANN401, FBT001 - a class of the target, and its options
    """A bare trainer with the attributes that its loss reads; it requests log-probs of the ``likeliest`` tokens."""
    return bare_instance(
        kind,
        beta=beta,
        temperature=1.0,
        teacher_client=teacher,
        teacher_model=None,
        loss_top_k=likeliest,
        loss_add_tail=tail,
        reverse_kl_top_1_mode="sampled",
        distillation_objective="jsd",
        use_teacher_server=True,
        use_liger_loss=False,
        current_gradient_accumulation_steps=1,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(report_to=[]),
        state=SimpleNamespace(global_step=0),
        accelerator=RankAccelerator(SimpleNamespace(), 0, 1),
        _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
    )


def make_self_distiller(kind: Any, alpha: float, teacher: Teacher, micro_batches: int) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer whose teacher runs on the sampling server, with the weights of the current step."""
    made = self_distillation.make_distiller(kind, alpha, teacher, micro_batches)
    vars(made.args).update(
        distillation_mode="topk_logits", distillation_topk=teacher.logits.shape[-1], distillation_add_tail=False
    )
    vars(made).update(
        use_teacher_server=True,
        teacher_client=teacher,
        state=SimpleNamespace(global_step=0),
        _last_loaded_step=0,
    )
    return made


def distil(
    entry: Callable[..., Any],
    distiller: Any,  # noqa: ANN401 - a trainer
    model: Model,
    inputs: Mapping[str, Tensor],
    count: Tensor | None = None,
) -> Tensor:
    """Compute the loss of a batch. The batch also contains the whole sequences and labels that earlier releases read.

    ``count``, if given, is the number of trained tokens of the optimizer step.
    """
    ids, mask = inputs["completion_ids"], inputs["completion_mask"]
    joined = {
        "input_ids": torch.cat([inputs["prompt_ids"], ids], 1),
        "attention_mask": torch.cat([inputs["prompt_mask"], mask], 1),
        "labels": torch.cat([torch.full_like(inputs["prompt_ids"], -100), torch.where(mask.bool(), ids, -100)], 1),
        "prompts": inputs["prompt_ids"],
        "prompt_attention_mask": inputs["prompt_mask"],
    }
    if "rollout_logprobs" in inputs:
        sampled = inputs["rollout_logprobs"]
        joined["rollout_logprobs"] = torch.cat([sampled.new_zeros(inputs["prompt_ids"].shape), sampled], 1)
    counted = {} if count is None else {"num_items_in_batch": count}
    loss: Tensor = entry(distiller, model, {**inputs, **joined}, **counted)
    return loss


def _loss(path: str, name: str) -> Boundary:
    settings, claimed = SHARES[name]
    whole = settings["likeliest"] == VOCABULARY
    trainer = Object(
        make_distiller,
        {
            "kind": Constant(Function(path)),
            "beta": Knob("mixture"),
            **knobs("likeliest", "tail"),
            "teacher": Object(Teacher, {"logits": Column("ref_logits")}),
        },
        at={"kind": "__class__", "likeliest": "loss_top_k", "tail": "loss_add_tail", "teacher": "teacher_client"},
    )
    return one_call(
        path=f"{path}.compute_loss",
        stage="aggregate",
        call=distil,
        name="loss",
        arguments={
            "entry": Constant(Function(f"{path}.compute_loss")),
            "distiller": trainer,
            "model": Object(Model, {"logits": Column("logits")}),
            "inputs": Table(completions(tools=False)),
        },
        produced_by={"inputs": "completions that the student sampled, padded at the right"},
        unused=frozenset({"prompt_length"} | (set() if settings["mixture"] else {"token"})),
        outputs={"loss": Output("", "nats", "loss", at=Use("loss"))},
        settings={name: settings},
        claims=claimed,
        reach=f"a teacher on a server, beta={settings['mixture']}, loss_top_k={settings['likeliest']}",
        requires=(
            no_empty_response,
            every_row_trains,
            trains_whole_completions,
            *(() if whole else (teacher_has_no_ties, no_token_is_impossible)),
        ),
    )


def teacher_has_no_ties(inputs: Inputs) -> str:
    """The reason to skip a batch where two tokens are almost equally likely for the teacher; empty otherwise.

    At a tie, the choice of the most likely token is arbitrary.
    """
    ordered = inputs.batch.ref_logits.sort(2).values
    return "two tokens of the vocabulary are equally likely" if bool((ordered.diff(dim=2) < LEAST_REST).any()) else ""


def no_token_is_impossible(inputs: Inputs) -> str:
    """The reason to skip a batch where a token has almost no probability; empty otherwise.

    TRL clamps the probability outside the support, which changes the result near 0.
    """
    least = min(x.log_softmax(2).amin().item() for x in (inputs.batch.logits, inputs.batch.ref_logits))
    return "a token of the vocabulary has almost no probability" if least < math.log(LEAST_REST) else ""
