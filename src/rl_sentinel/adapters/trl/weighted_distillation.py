"""TRL's distillation on sampled tokens, weighted by log-ratios of teacher and sampler, and its metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Earlier, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import completions, itself, trains_whole_completions
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.self_distillation import Model
from rl_sentinel.adapters.trl.server_distillation import ASKS, TRAINERS, Teacher, distil, make_distiller
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Logged name -> its unit.
UNITS: Mapping[str, str] = {
    "iw_opd/mean_advantage": "nats",
    "iw_opd/mean_abs_advantage": "nats",
    "iw_opd/mean_weight": "ratio",
    "iw_opd/min_weight": "ratio",
    "iw_opd/max_weight": "ratio",
}

#: Logged name -> its quantity if all tokens have the same weight.
DIFFERENCES: Mapping[str, str] = {"iw_opd/mean_advantage": "kl.k1", "iw_opd/mean_abs_advantage": "kl.abs"}

_METRICS = "iw_opd_trainer.py, _compute_iw_opd_loss: means and extremes over the tokens with a label"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss and metrics of each trainer that weights sampled tokens."""
    for path in TRAINERS:
        method = f"{path}._compute_iw_opd_loss"
        if not target.has(method) or not target.has(f"{path}.{ASKS}") or target.fails(path):
            continue
        source = source_of(target.find(method))
        yield from bindable(target, _weighted(path))
        if logged := frozenset(name for name in UNITS if f'"{name}"' in source):
            yield from bindable(target, _weighted(path, logged))
        if logged >= set(DIFFERENCES):
            yield from bindable(target, _differences(path))


class SampledTeacher:
    """A fake client of the teacher server, which returns only the log-probs of the sampled tokens."""

    def __init__(self, logprobs: Tensor) -> None:
        """Store ``[B, T]`` log-probs."""
        self.logprobs = logprobs.detach()

    def get_sequence_logprobs(
        self, sequences: list[list[int]], prompt_lengths: list[int], **_options: object
    ) -> dict[str, Any]:
        """The log-prob of each completion token; each completion token is also returned as the most likely token."""
        counts = [len(ids) - before for ids, before in zip(sequences, prompt_lengths, strict=True)]
        found = [self.logprobs[row, :count].unsqueeze(1).tolist() for row, count in enumerate(counts)]
        words = [[[token] for token in ids[before:]] for ids, before in zip(sequences, prompt_lengths, strict=True)]
        return {"actual_logprobs": found, "logprobs": found, "logprob_token_ids": words}


def make_weighted_distiller(kind: Any, teacher: Any, gamma: float = 0.5) -> Any:  # noqa: ANN401 - a class of the target, and its teacher
    """The trainer of :func:`make_distiller`, with an objective that weights a log-ratio by earlier log-ratios."""
    made = make_distiller(kind, 1.0, 1, True, teacher)  # noqa: FBT003 - as above
    vars(made).update(distillation_objective="iw_opd", iw_opd_gamma=gamma, iw_opd_epsilon=1e-8)
    return made


def _weighted(path: str, logged: frozenset[str] = frozenset()) -> Boundary:
    """The boundary of the loss over the micro-batches of a step, or of the ``logged`` metrics of one batch."""
    trainer = Object(
        make_weighted_distiller,
        {"kind": Constant(Function(path)), "teacher": Object(Teacher, {"logits": Column("ref_logits")})},
        at={"kind": "__class__", "teacher": "teacher_client"},
    )
    step = Step(
        call=distil,
        name="loss",
        arguments={
            "entry": Constant(Function(f"{path}.compute_loss")),
            "distiller": Earlier(Use("ready")) if logged else trainer,
            "model": Object(Model, {"logits": Column("logits")}),
            "inputs": Table({**completions(tools=False), "rollout_logprobs": Column("rollout_logprob")}),
            "count": Computed(
                frozenset({"mask"}),
                lambda inputs: inputs.mini_batch.mask.sum(),
                "which tokens are trained cannot be read from a count",
            ),
        },
        each=() if logged else ("micro_batch",),
        produced_by={"count": "transformers, Trainer.get_batch_samples: labels of an optimizer step"},
    )
    place = Use("ready").attribute("_metrics")["train"]
    metrics = {
        name: Output("", UNITS[name], over="live", at=place[name], form=Logged()) for name in UNITS if name in logged
    }
    return Boundary(
        path=f"{path}.compute_loss",
        stage="metric" if logged else "aggregate",
        steps=(Step(call=itself, name="ready", arguments={"trainer": trainer}), step) if logged else (step,),
        unused=frozenset({"prompt_length"}),
        outputs=metrics or {"loss": Output("", "nats", "loss", at=Use("loss"), join="sum")},
        settings={"logged, importance-weighted" if logged else "server, importance-weighted": {}},
        claims=claims(_METRICS)
        if logged
        else claims("_compute_iw_opd_loss: the sum, divided by num_items_in_batch", denominator="given"),
        reach="a teacher on a server, distillation_objective=iw_opd",
        requires=(equal_micro_batches, no_empty_response, every_row_trains, trains_whole_completions),
    )


def _differences(path: str) -> Boundary:
    """The boundary of the logged means of unweighted log-ratios.

    The teacher has known log-probs of the sampled tokens.
    """
    made = _weighted(path, frozenset(DIFFERENCES))
    trainer = Object(
        make_weighted_distiller,
        {
            "kind": Constant(Function(path)),
            "teacher": Object(SampledTeacher, {"logprobs": Column("ref_logprob")}),
            "gamma": Knob("iw_opd_gamma"),
        },
        at={"kind": "__class__", "teacher": "teacher_client", "gamma": "iw_opd_gamma"},
    )
    first, step = made.steps
    outputs = {name: replace(made.outputs[name], quantity=quantity) for name, quantity in DIFFERENCES.items()}
    return replace(
        made,
        steps=(replace(first, arguments={"trainer": trainer}), step),
        reads=(made.reads - {"ref_logits", "logits", "token"}) | {"ref_logprob"},
        unused=made.unused | {"logits", "token"},
        outputs=outputs,
        settings={"logged, no weights": {"iw_opd_gamma": 0.0}},
        claims=claims(
            _METRICS,
            output_pairs=dict.fromkeys(DIFFERENCES, "ref_logprob against rollout_logprob"),
            output_definitions=dict.fromkeys(DIFFERENCES, "over trained tokens"),
        ),
        reach=f"{made.reach}, iw_opd_gamma=0",
    )
