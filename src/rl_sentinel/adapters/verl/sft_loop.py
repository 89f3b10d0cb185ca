"""Boundary of verl's loop of supervised fine-tuning: gradient and logs of a step over data-parallel ranks."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.value_codecs import Derived, constants, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.engine import MODULE as ENGINES
from rl_sentinel.adapters.verl.fakes import SupervisedFake, cpu_device, record_losses
from rl_sentinel.adapters.verl.micro_batches import splits_equally
from rl_sentinel.adapters.verl.sft import CUT_CLAIMS, LOSS, LOSS_CLAIMS
from rl_sentinel.adapters.verl.training_run_fakes import Logger, Silence
from rl_sentinel.adapters.verl.training_worker import (
    COLLECTIVES,
    ENGINE,
    FAKES,
    WORKER,
    engine_class,
    worker_of,
)
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

MODULE = "verl.trainer.sft_trainer"
TRAINER = f"{MODULE}.SFTTrainer"
FIT = f"{TRAINER}.fit"
COLLATE = "verl.utils.dataset.dataset_utils.SFTTensorCollator"

#: Logged losses of the batch; the validation uses the same batch.
LOSSES = ("train/loss", "val/loss")
TOKENS = "train/global_tokens"

_MICRO_BATCH = Derived(
    lambda inputs: inputs.batch.rows // (inputs.layout.micro_batches * inputs.layout.ranks),
    frozenset({"micro_batches", "ranks"}),
)

_LOGS = claims(
    "sft_trainer.py, fit: global_tokens is the sum of the sequence lengths of all data-parallel ranks",
    output_algorithms={TOKENS: "tokens of responses and of prompts of one token"},
)

#: One step of a configuration, with a validation after it.
_RUN: Mapping[str, Any] = {
    "trainer.total_epochs": 1,
    "trainer.test_freq": 1,
    "trainer.save_freq": 1,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a step of the loop."""
    if all(target.has(path) for path in (FIT, COLLATE, ENGINE, LOSS, f"{WORKER}.infer_batch")):
        yield from try_bind(target, FIT, "policy-loss", lambda: [_loop(target)])


def fit_on_ranks(  # noqa: PLR0913 - classes of the target, and what the trainer builds
    owner: Any,  # noqa: ANN401 - classes of the target, here and below
    worker: Any,  # noqa: ANN401
    engine: Any,  # noqa: ANN401
    collate: Any,  # noqa: ANN401
    loss: Callable[..., Any],
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    answers: list[Tensor],
    masks: list[Tensor],
    ranks: int,
) -> dict[str, Any]:
    """Run one step and a validation on the same rows; return the losses divided by the ranks, and rank 0's logs.

    ``answers`` are the log-probs and ``masks`` are the loss masks of the responses. Each rank has an equal share of the
    rows.
    """
    copies = [answer.detach().clone().requires_grad_() for answer in answers]
    rows = [_row(number, mask) for number, mask in enumerate(masks)]
    size, losses, logged = len(rows) // ranks, list[Tensor](), list[dict[str, Any]]()

    def work(rank: int) -> None:
        own = bare_instance(engine_class(engine), model=SupervisedFake(copies))
        loader = [collate(config.data.pad_mode)(rows[rank * size :][:size])]
        bare_instance(
            owner,
            rank=rank,
            config=config,
            engine=own,
            training_client=worker_of(worker, own, partial(loss, None)),
            model_config=SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=0)),
            train_sampler=Silence(),
            train_dataloader=loader,
            val_dataloader=loader,
            ckpt_handler=Silence(),
            device_name=cpu_device(),
            global_batch_size=len(rows),
            **dict.fromkeys(("steps_per_epoch", "total_training_steps", "test_freq", "save_freq"), 1),
            **dict.fromkeys(("start_profile_step", "end_profile_step"), -1),
            resume_global_step=0,
        ).fit()
        if rank == 0:
            logged.extend(Logger.logged)

    with replaced_globals(vars(dist), **COLLECTIVES), record_losses(losses), redirect_stdout(None):
        run_on_ranks(ranks, work)
    for answer, copy in zip(answers, copies, strict=True):
        if copy.grad is not None:  # averaged over the ranks, as FSDP does
            torch.autograd.backward([answer], [copy.grad / ranks])
    return {"losses": [one / ranks for one in losses]} | {name: x for step in logged for name, x in step.items()}


def _row(number: int, mask: Tensor) -> dict[str, Tensor]:
    """A row of the data set. The first token is the prompt: the index of the row."""
    ids = torch.cat([torch.tensor([number]), torch.zeros(len(mask), dtype=torch.int64)])
    loss_mask = torch.cat([torch.zeros(1, dtype=torch.int64), mask])
    return {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": loss_mask}


def _all(items: list[Any], **_about: object) -> list[Any]:
    """The items themselves, without a progress bar."""
    return items


def _run(target: Target) -> dict[str, Codec]:
    """The settings of a run: equal micro-batches, or one batch of any size where the release cannot make them."""
    if splits_equally(target):
        return {**constants(**_RUN, **{"data.use_dynamic_bsz": False}), "data.micro_batch_size_per_gpu": _MICRO_BATCH}
    return constants(**_RUN, **{"data.use_dynamic_bsz": True})


def _loop(target: Target) -> Boundary:
    silent = ("log_gpu_memory_usage", "aggressive_empty_cache", "log_with_rank")
    fakes: dict[str, Callable[..., Any]] = {
        **FAKES,
        f"{ENGINES}.get_device_id": cpu_device,
        f"{MODULE}.Tracking": Logger,
        f"{MODULE}.tqdm": _all,
        **{f"{MODULE}.{name}": Silence() for name in silent},
    }
    source = inspect.getsource(target.find(FIT))
    run = Use("run")
    logged = {name: Output("", "", "loss", over="live", at=run[name]) for name in LOSSES}
    logged[TOKENS] = Output("", "tokens", at=run[TOKENS])
    return one_call(
        path=FIT,
        stage="policy-loss",
        call=fit_on_ranks,
        name="run",
        fakes=present(target, fakes),
        arguments={
            **functions(owner=TRAINER, worker=WORKER, engine=ENGINE, collate=COLLATE, loss=LOSS),
            "config": default_config(target, "", _run(target), "sft_trainer_engine"),
            "answers": Column("logprob", Ragged(), leaf=True),
            "masks": Column("mask", Ragged(), torch.int64),
            "ranks": Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"})),
        },
        produced_by={
            "masks": "verl/utils/dataset/multiturn_sft_dataset.py, __getitem__; dataset_utils.py, SFTTensorCollator"
        },
        outputs={
            "loss": Output("", "", "loss", at=run["losses"], form=Total()),
            **{name: output for name, output in logged.items() if f'"{name}"' in source or name == "train/loss"},
        },
        settings={"default": {}},
        claims=LOSS_CLAIMS | CUT_CLAIMS | _LOGS,
        reach="python -m verl.trainer.sft_trainer; val/loss: data.val_files",
        requires=(no_empty_response, has_trained_token, equal_parts),
    )
