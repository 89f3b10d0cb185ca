"""SkyRL's forward passes before the update: the columns that they add, and the logged gap to the sampler."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import has_trained_token
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.skyrl.arguments import PRODUCED_BY, TRAINER, Arguments, arguments, config
from rl_sentinel.adapters.skyrl.generator import LOGPROBS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

PATH = f"{TRAINER}.fwd_logprobs_values_reward"

#: Key of the training batch -> the column that a forward pass stores there.
PASSES: Mapping[str, str] = {
    "action_log_probs": "logprob",
    "base_action_log_probs": "ref_logprob",
    "values": "value",
}

_GAP = "policy/rollout_train_logprobs_abs_diff"

#: Logged name -> the output that the name promises; releases have some of them.
LOGGED: Mapping[str, Output] = {
    f"{_GAP}_mean": Output("", "nats", "kl.abs", over="live"),
    f"{_GAP}_max": Output("", "nats", over="live"),
    f"{_GAP}_min": Output("", "nats", over="live"),
    "policy/rollout_train_prob_diff_mean": Output("", "", "probability_difference.mean", over="live"),
}

#: The sampler returns the log-prob of each token.
_SETTINGS: Settings = {LOGPROBS: 1}

_DOC = (
    "trainer.py, fwd_logprobs_values_reward: abs diff between rollout and forward-pass logprobs, over response tokens"
)
_WORKERS = (
    "workers/worker.py, forward: a log-prob or a value per response token of each row; dispatch.py: rows in order"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the trainer's method, in releases that call workers through a dispatch object."""
    if not target.has(PATH):
        return
    try:
        forms = arguments(target)
        source = inspect.getsource(target.find(PATH))
    except Unbindable as why:
        yield Unbound.because(PATH, "metric", why)
        return
    if "self.dispatch" in source:
        yield from bindable(target, *_boundaries(forms, source))


class Passed(NamedTuple):
    """A worker's output: the rows of a pass, in the form of early and of later releases."""

    rows: Tensor
    key: str

    @property
    def loss_fn_outputs(self) -> list[dict[str, list[float]]]:
        """One dict per row."""
        return [{self.key: row.tolist()} for row in self.rows]

    def __getitem__(self, name: Any) -> Any:  # noqa: ANN401 - the item of a dict
        """The tensor, as ``output["output"]``."""
        return {"output": self.rows}[name]


class Dispatch:
    """A fake of the dispatch to workers: the forward pass of a model returns a column of the batch."""

    def __init__(self, passes: Mapping[str, Tensor]) -> None:
        """Store the passes by the keys under which the trainer stores them."""
        self.passes = passes

    def forward(self, model: str, _data: Any) -> Passed:  # noqa: ANN401 - the target's batch
        """The forward pass of ``policy``, ``ref`` or ``critic``."""
        keys = {"policy": "action_log_probs", "ref": "base_action_log_probs", "critic": "values"}
        return Passed(self.passes[keys[model]], "values" if model == "critic" else "logprobs")

    def empty_cache(self, *_models: str) -> None:
        """Do nothing: there is no cache."""


def run_passes(owner: type, cfg: Any, batch: Any, passes: Mapping[str, Tensor]) -> dict[str, Any]:  # noqa: ANN401
    """Run the forward passes; return ``batch``, to which they add columns, and ``logged``, the metrics."""
    attributes: dict[str, Callable[..., Any]] = {"has_critic": property(lambda _self: True)}  # type: ignore[dict-item]
    trainer = bare_instance(
        type("Trainer", (owner,), attributes), cfg=cfg, dispatch=Dispatch(passes), all_metrics={}, ref_model=owner
    )
    return {"batch": trainer.fwd_logprobs_values_reward(batch), "logged": trainer.all_metrics}


def _boundaries(forms: Arguments, source: str) -> Iterator[Boundary]:
    """Boundaries of the tensors that the passes add to the batch, and of the logged metrics."""
    tensors: dict[str, Codec] = {
        "sequences": forms.column("token"),
        "attention_mask": forms.response_mask,
        "loss_mask": forms.loss_mask,
        "rollout_logprobs": forms.column("rollout_logprob"),
    }
    step = Step(
        call=run_passes,
        name="passed",
        arguments={
            "owner": Constant(Function(TRAINER)),
            "cfg": config(_SETTINGS),
            "batch": forms.batch(tensors, {"response_length": Constant(0)}),
            "passes": Table({key: forms.column(column) for key, column in PASSES.items()}),
        },
        produced_by={"batch": PRODUCED_BY, "passes": _WORKERS},
    )
    passed = Use("passed")
    columns = {
        column: Output("B T", COLUMNS[column]["unit"], column, at=passed["batch"][key], form=forms.form)
        for key, column in PASSES.items()
    }
    whole = partial(Boundary, path=PATH, steps=(step,), requires=(has_trained_token,))
    yield whole(
        stage="batch",
        unused=frozenset({"token", "rollout_logprob"}),
        outputs=columns,
        settings={"outputs": _SETTINGS},
        claims=claims(f"{_DOC}; the passes are stored under their names", conserves=True),
        reach="every run with a critic or a reference",
    )
    logged = {name: output for name, output in LOGGED.items() if f'"{name}"' in source}
    pair = "logprob against rollout_logprob"
    yield whole(
        stage="metric",
        unused=frozenset({"token", "ref_logprob", "value"}),
        outputs={name: replace(output, at=passed["logged"][name]) for name, output in logged.items()},
        settings={"metrics": _SETTINGS},
        claims=claims(_DOC, output_pairs={f"{_GAP}_mean": pair}) if f"{_GAP}_mean" in logged else Claims(),
        reach="every run with log-probs of the sampler",
    )
