"""SkyRL's critic worker: the value loss of a mini-batch, split into micro-batches."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.configs import Config
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, has_trained_token
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Width, functions
from rl_sentinel.adapters.skyrl.arguments import CONFIG, PRODUCED_BY, Arguments, all_ones, arguments
from rl_sentinel.adapters.skyrl.losses import CRITIC
from rl_sentinel.adapters.skyrl.worker import averages, row_numbers
from rl_sentinel.adapters.skyrl.worker_fakes import Bar, Strategy, cpu
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

WORKER = "skyrl.backends.skyrl_train.workers.worker.CriticWorkerBase"
#: The worker's method that trains on a mini-batch: STEP or, until January 2026, UPDATE.
STEP, UPDATE = f"{WORKER}.forward_backward", f"{WORKER}.ppo_train"

_WHOLE = claims(
    "worker.py, optim_step: gradients of micro-batches are scaled by one over their number; in earlier releases, "
    "training_step: the loss is divided by accumulation_steps",
    denominator="given",
)
_CLIPPED = claims(
    "configuration, algorithm.value_clip: the range of the value loss; ppo_utils.py, ppo_critic_loss: the larger "
    "of two squared errors, halved, averaged over the tokens of a row and then over rows",
    algorithm="clipped value",
    factor="half",
    aggregation="sequence-mean-token-mean",
    rows="all",
)


#: Columns of a training batch that a critic does not read.
_LOG_PROBS = ("action_log_probs", "base_action_log_probs", "rollout_logprobs")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the training step, in releases that average over micro-batches.

    The mean is taken in the update, or in the loss of each micro-batch.
    """
    path = UPDATE if target.has(UPDATE) else STEP
    if not target.has(path) or target.fails(path) or not target.has(CRITIC):
        return
    if path == STEP and not averages(target, WORKER):
        return
    try:
        yield from bindable(target, _boundary(target, path, arguments(target)))
    except Unbindable as why:
        yield Unbound.because(path, "value-loss", why)


class Model:
    """A fake critic: it looks up the values of a row by the row index, which is the first token."""

    def __init__(self, values: Tensor) -> None:
        """Store the values of all rows, and one parameter, which shows the factor on gradients."""
        self.values = values
        self.weight = torch.nn.Parameter(torch.ones(()))

    def __call__(self, sequences: Tensor, *_inputs: object, **_options: object) -> tuple[Tensor, None]:
        """The values of the rows, and no other output."""
        return self.values[sequences[:, 0]], None

    def train(self) -> None:
        """Do nothing."""

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameter."""
        return [self.weight]


def train_mini_batch(  # noqa: PLR0913 - functions of the target, and the arguments of the worker
    worker: Any,  # noqa: ANN401 - the target's class
    loss_fn: Callable[..., Any],
    cfg: Any,  # noqa: ANN401 - the target's class
    reads_section: bool,  # noqa: FBT001 - whether the worker's ``cfg`` is ``cfg.trainer``
    values: Tensor,
    data: Any,  # noqa: ANN401 - the target's class
    parts: int,
) -> dict[str, Any]:
    """Train on a mini-batch in ``parts`` micro-batches, and return its loss.

    The loss is the sum of the micro-batches' losses, times the factor by which the update scales the summed gradients.
    With ``reads_section``, the worker's ``cfg`` is ``cfg.trainer``; otherwise, it is the whole configuration.
    """
    cfg.trainer.micro_train_batch_size_per_gpu = data.batch_size // parts
    model = Model(values)
    bare_worker = bare_instance(
        worker,
        cfg=cfg.trainer if reads_section else cfg,
        model=model,
        strategy=Strategy(),
        optimizer=None,
        scheduler=SimpleNamespace(get_last_lr=lambda: [0.0]),
        mesh_rank=SimpleNamespace(dp_size=1),
        record_memory=False,
        critic_loss_fn=loss_fn,
        _micro_batches_accumulated=0,
    )
    # The update scales this gradient of 1 in place like any other, so that it becomes the factor.
    model.weight.grad = torch.ones(())
    if hasattr(worker, "ppo_train"):
        cfg.trainer.update_epochs_per_batch = 1
        bare_worker.critic_mini_batch_size_per_gpu = data.batch_size
        data.metadata["global_step"] = 0
        with replaced_globals(worker.ppo_train.__globals__, tqdm=Bar):
            bare_worker.ppo_train(data)
    else:
        bare_worker.forward_backward(data)
        bare_worker.optim_step()
    return {"loss": torch.stack(bare_worker.strategy.losses).sum() * float(model.weight.grad)}


def _boundary(target: Target, path: str, forms: Arguments) -> Boundary:
    tensors: dict[str, Codec] = {
        "sequences": Derived(row_numbers, frozenset({"extra"})),
        "attention_mask": Derived(all_ones, frozenset({"extra"})),
        "loss_mask": forms.loss_mask,
        "response_mask": forms.response_mask,
        "values": forms.column("old_value"),
        "returns": forms.column("returns"),
        **dict.fromkeys(
            ("action_log_probs", "base_action_log_probs", "rollout_logprobs", "advantages"), Constant(None)
        ),
    }
    place = target.locate(WORKER).rpartition(".")[0]
    fakes: dict[str, Callable[..., Any]] = {f"{place}.torch.cuda.current_device": cpu}
    if path == UPDATE:
        fakes[f"{place}.torch.distributed.barrier"] = lambda: None
    return one_call(
        path=f"{path} -> {CRITIC}",
        stage="value-loss",
        call=train_mini_batch,
        name="trained",
        arguments={
            **functions(worker=WORKER, loss_fn=CRITIC),
            "cfg": Config(CONFIG, knobs_at={"trainer.algorithm.value_clip": "value_clip"}),
            "reads_section": Constant("self.cfg.trainer." not in inspect.getsource(target.find(path))),
            "values": forms.column("value"),
            "data": forms.batch(tensors, {"response_length": Width()}),
            "parts": MICRO_BATCHES,
        },
        fakes=fakes,
        produced_by={"data": PRODUCED_BY},
        unused=frozenset({"length"}),
        outputs={"loss": Output("", "", "loss", at=Use("trained")["loss"])},
        settings={"in micro-batches": {"value_clip": 0.2}},
        claims=_WHOLE | _CLIPPED,
        reach="trainer.algorithm.advantage_estimator=gae",
        requires=(equal_micro_batches, has_trained_token),
    )
