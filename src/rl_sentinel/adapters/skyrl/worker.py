"""SkyRL's policy worker: loss, metrics and log-probs of a mini-batch, split into micro-batches."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCH_ROWS, MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, Width, constants, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, all_ones, arguments
from rl_sentinel.adapters.skyrl.loss_modes import MODES
from rl_sentinel.adapters.skyrl.losses import PLAIN, REGISTRY, SCALE, WHOLE, scaling
from rl_sentinel.adapters.skyrl.worker_fakes import Bar, Model, cpu, stored_entropy, worker_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

_MODULE = "skyrl.backends.skyrl_train.workers.worker"
WORKER = f"{_MODULE}.PolicyWorkerBase"
#: The worker's method that trains on a mini-batch: WHOLE_STEP or, until January 2026, UPDATE.
WHOLE_STEP, UPDATE = f"{WORKER}.forward_backward", f"{WORKER}.ppo_train"
#: The loss of the first releases, which have no registry.
_FIRST_LOSS = f"{_MODULE}.PolicyLoss"
ENTROPY = "worker.py: the entropy of trained tokens, averaged; metrics of micro-batches are averaged"
ROWS = claims("worker.py: loss_fn_outputs has the log-probs of each sequence, trimmed to its response", conserves=True)

#: Columns that the model computes.
MODEL_COLUMNS = ("logprob", "entropy")
#: Key of the training batch -> column.
BATCH_COLUMNS: Mapping[str, str] = {
    "advantages": "advantage",
    "action_log_probs": "old_logprob",
    "base_action_log_probs": "ref_logprob",
    "rollout_logprobs": "rollout_logprob",
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, the logged entropy, and the returned log-probs."""
    path = next((p for p in (UPDATE, WHOLE_STEP) if target.has(p) and not target.fails(p)), "")
    if not path:
        return
    try:
        forms = arguments(target)
        yield from bindable(target, *_step_boundaries(target, path, forms))
    except Unbindable as why:
        yield Unbound.because(path, "policy-loss", why)


def train_mini_batch(  # noqa: PLR0913 - functions of the target, and the arguments of the worker
    worker: Any,  # noqa: ANN401 - the target's class
    losses: Any,  # noqa: ANN401 - the target's registry
    cfg: Any,  # noqa: ANN401 - the target's class
    reads_section: bool,  # noqa: FBT001 - whether the worker's ``cfg`` is ``cfg.trainer``
    columns: dict[str, Tensor],
    data: Any,  # noqa: ANN401 - the target's class
    parts: int,
    averages: bool,  # noqa: FBT001 - whether optim_step divides by the number of micro-batches
) -> dict[str, Any]:
    """Run the worker's step over a mini-batch in ``parts`` micro-batches; return its loss, entropy and log-probs.

    There are no log-probs in releases whose worker returns none.
    """
    size = data.batch_size // parts
    cfg.trainer.micro_train_batch_size_per_gpu = size
    bare_worker = worker_of(worker, losses, cfg.trainer if reads_section else cfg, cfg, Model(columns), ranks=1)
    if hasattr(worker, "ppo_train"):
        cfg.trainer.update_epochs_per_batch = 1
        bare_worker.policy_mini_batch_size_per_gpu = data.batch_size
        data.metadata["global_step"] = 0
        with replaced_globals(worker.ppo_train.__globals__, tqdm=Bar):
            metrics, outputs = bare_worker.ppo_train(data).metadata["train_status"], []
    else:
        returned = bare_worker.forward_backward(data)
        metrics = getattr(returned, "metrics", returned)
        outputs = getattr(returned, "loss_fn_outputs", None) or metrics.get("loss_fn_outputs", [])
    return {
        "loss": torch.stack(bare_worker.strategy.losses).sum() / (parts if averages else 1),
        "entropy": float(metrics["policy_entropy"]),
        "logprobs": [torch.tensor(row["logprobs"]) for row in outputs],
    }


def averages(target: Target, worker: str = WORKER) -> bool:
    """Whether the worker's ``optim_step`` divides the gradients by the number of micro-batches."""
    path = f"{worker}.optim_step"
    return target.has(path) and "_micro_batches_accumulated" in inspect.getsource(target.find(path))


def reads_section(target: Target, path: str) -> bool:
    """Whether the worker's ``cfg`` is the section of the trainer; until February 2026, it is the whole one."""
    return "self.cfg.trainer." not in inspect.getsource(target.find(path))


def row_numbers(inputs: Any) -> Tensor:  # noqa: ANN401 - the inputs of a codec
    """Sequences for :class:`Model`: a prompt of one token, which is the row index, and a response of zeros."""
    rows = torch.arange(inputs.batch.rows).unsqueeze(1)
    return torch.nn.functional.pad(rows, (0, inputs.batch.width + inputs.layout.extra))


def _step_boundaries(target: Target, path: str, forms: Arguments) -> Iterator[Boundary]:
    for setting, kl in _SETTINGS.items():
        for reduction in ("token_mean", "sequence_mean"):
            regularized = bool(kl["kl"]) and reduction == "sequence_mean"
            settings: Settings = {"loss_reduction": reduction, **kl, **(REGULARIZED if regularized else {})}
            yield _boundary(
                target,
                path,
                forms,
                "policy-loss",
                {"loss": Output("", "", "loss", at=Use("trained")["loss"])},
                {f"{setting}, {reduction}": settings},
                loss_claims(kl=bool(kl["kl"]), regularized=regularized),
                frozenset() if setting == "with KL" else frozenset({"ref_logprob"}),
            )
    logged = {"policy_entropy": Output("", "nats", "entropy.mean", over="live", at=Use("trained")["entropy"])}
    entropy = _boundary(target, path, forms, "metric", logged, {"metrics": _LOGGED}, claims(ENTROPY), frozenset())
    yield replace(entropy, reads=frozenset({"entropy", "mask", "length"}))
    if path == WHOLE_STEP and "loss_fn_outputs" in inspect.getsource(target.find(path)):
        rows = {"logprob": Output("B T", "nats", "logprob", at=Use("trained")["logprobs"], form=Ragged())}
        batch = _boundary(target, path, forms, "batch", rows, {"outputs": _LOGGED}, ROWS, frozenset())
        yield replace(batch, reads=frozenset({"logprob", "length"}), requires=(*batch.requires, no_empty_response))


_ALGORITHM = "trainer.algorithm"

#: Numbers of a loss with a KL, and the field of the algorithm's section for each.
REGULARIZED: Settings = {"clip_low": 0.2, "clip_high": 0.3, "kl_loss_coef": 0.25}
FIELDS: Mapping[str, str] = {
    "loss_reduction": "loss_reduction",
    "kl": "use_kl_loss",
    "clip_low": "eps_clip_low",
    "clip_high": "eps_clip_high",
    "kl_loss_coef": "kl_loss_coef",
}

_REGULARIZED = claims(
    "worker.py, _forward_backward_micro: policy loss plus kl_loss_coef times the mean of the sequences' mean KL; "
    "configuration, kl_estimator_type: k3 by default",
    aggregation="sequence-mean-token-mean",
    rows="all",
    kl="k3",
)


def loss_claims(*, kl: bool, regularized: bool) -> Claims:
    """Claims of the loss; its formula, with the KL term, only if ``regularized``."""
    if regularized:
        return MODES[PLAIN].algorithm | _REGULARIZED | WHOLE
    return (Claims() if kl else MODES[PLAIN].claims) | WHOLE


def knobs_of(settings: Mapping[str, Settings]) -> dict[str, str]:
    """Configuration field -> setting, for these settings."""
    names = {name for one in settings.values() for name in one}
    return {f"{_ALGORITHM}.{field}": name for name, field in FIELDS.items() if name in names}


_SETTINGS: Mapping[str, Settings] = {"alone": {"kl": False}, "with KL": {"kl": True}}
_LOGGED: Settings = {"loss_reduction": "token_mean", "kl": False}


def training_tensors(target: Target, forms: Arguments) -> dict[str, Codec]:
    """The tensors of a worker's training batch; advantages are scaled first in releases that scale them."""
    columns: dict[str, Codec] = {key: forms.column(name) for key, name in BATCH_COLUMNS.items()}
    if target.has(SCALE):
        columns["advantages"] = Earlier(Use("scaled"))
    return {
        "sequences": Derived(row_numbers, frozenset({"extra"})),
        "attention_mask": Derived(all_ones, frozenset({"extra"})),
        "loss_mask": forms.loss_mask,
        "response_mask": forms.response_mask,
        **constants(values=None, returns=None),
        **columns,
    }


def _boundary(  # noqa: PLR0913 - the parts in which the boundaries differ
    target: Target,
    path: str,
    forms: Arguments,
    stage: Stage,
    outputs: Mapping[str, Output],
    settings: Mapping[str, Settings],
    claimed: Claims,
    unused: frozenset[str],
) -> Boundary:
    scales, tensors, registered = target.has(SCALE), training_tensors(target, forms), target.has(REGISTRY)
    place = target.locate(WORKER).rpartition(".")[0]
    module = inspect.getsource(inspect.getmodule(target.find(path)) or target.find(path))
    fakes: dict[str, Callable[..., Any]] = {f"{place}.torch.cuda.current_device": cpu}
    if path == UPDATE:
        fakes[f"{place}.torch.distributed.barrier"] = lambda: None
    if "import chunked_entropy_from_logits" in module:
        fakes[f"{place}.chunked_entropy_from_logits"] = stored_entropy
    step = Step(
        call=train_mini_batch,
        name="trained",
        arguments={
            **functions(worker=WORKER, losses=REGISTRY if registered else _FIRST_LOSS),
            "cfg": Config(CONFIG, {f"{_ALGORITHM}.policy_loss_type": PLAIN} if registered else {}, knobs_of(settings)),
            "reads_section": Constant(reads_section(target, path)),
            "columns": Table({name: forms.column(name) for name in MODEL_COLUMNS}),
            "data": forms.batch(tensors, {"response_length": Width()}),
            "parts": MICRO_BATCHES,
            "averages": Constant(averages(target)),
        },
        fakes=fakes,
        produced_by={"data": PRODUCED_BY},
    )
    return Boundary(
        path=f"{SCALE} -> {path}" if scales else path,
        stage=stage,
        steps=(scaling(forms, MICRO_BATCH_ROWS), step) if scales else (step,),
        unused=unused | frozenset({"rollout_logprob", "entropy", "length"}),
        outputs=outputs,
        settings=settings,
        claims=claimed,
        reach="every run; trainer.micro_train_batch_size_per_gpu below the rows of a mini-batch",
        requires=(equal_micro_batches, has_trained_token),
    )
