"""TRL's distillation on sampled tokens: weights by the log-ratios of teacher and sampler, and metrics."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Earlier
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

_METRICS = "iw_opd_trainer.py, _compute_iw_opd_loss: means and extremes over the tokens with a label"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The loss of each trainer that weights sampled tokens, and its metrics."""
    for path in TRAINERS:
        method = f"{path}._compute_iw_opd_loss"
        if not target.has(method) or not target.has(f"{path}.{ASKS}") or target.fails(path):
            continue
        source = source_of(target.find(method))
        yield from bindable(target, _weighted(path))
        if logged := frozenset(name for name in UNITS if f'"{name}"' in source):
            yield from bindable(target, _weighted(path, logged))


def make_weighted_distiller(kind: Any, teacher: Teacher) -> Any:  # noqa: ANN401 - a class of the target
    """The trainer of :func:`make_distiller`, which weights the log-ratio of a token by those before it."""
    made = make_distiller(kind, 1.0, 1, True, teacher)  # noqa: FBT003 - as above
    vars(made).update(distillation_objective="iw_opd", iw_opd_gamma=0.5, iw_opd_epsilon=1e-8)
    return made


def _weighted(path: str, logged: frozenset[str] = frozenset()) -> Boundary:
    """The loss over the micro-batches of a step, or the numbers that are ``logged`` of one batch."""
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
