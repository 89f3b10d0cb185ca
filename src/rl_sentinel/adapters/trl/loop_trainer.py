"""TRL's single-method training loops (``train`` samples, scores and updates): build a trainer, run one batch."""

import dataclasses
import importlib
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.trl.loop_fakes import CONTEXT, FIRST_PROMPT, FIRST_TOKEN, Policy, Responses, Scorer
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.tiny_trainer import PADDING, make_model, make_tokenizer

#: The sampling temperature; not 1, so that log-probs without it differ.
TEMPERATURE = 0.7

#: Fields of the configuration of every loop, if a release has them.
DEFAULTS: Mapping[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "disable_tqdm": True,
    "save_strategy": "no",
    "num_sample_generations": 0,
    "num_ppo_epochs": 1,
    "num_epochs": 1,
    "stop_token": "eos",
    "temperature": TEMPERATURE,
}

#: Class attributes that newer transformers read, and that older loops do not set. For a loop with a parameter
#: ``tokenizer``, this name is added: it replaces a property of transformers that warns at each use.
LATER: Mapping[str, Any] = {"optimizer_cls_and_kwargs": None}

#: Names of local variables of ``train`` that are read when it logs.
LOCALS = ("rewards", "advantages", "returns", "kl", "rlhf_reward", "non_score_reward")


class LoopAccelerator(RankAccelerator):
    """The accelerator of one process, which records the scaled losses and prints nothing.

    In accelerate, all accelerators of a process share the number of accumulation steps that was set last. Here each
    accelerator has a separate number.
    """

    def __init__(self, own: Any) -> None:  # noqa: ANN401 - accelerate's
        """Wrap the accelerator of a new trainer."""
        super().__init__(own, 0, 1)
        self.steps: int = own.gradient_accumulation_steps

    def backward(self, loss: Tensor, **_options: object) -> None:
        """Record the loss, divided by the accumulation steps, as accelerate does."""
        self.losses.append(loss / self.steps)

    def print(self, *_arguments: object, **_options: object) -> None:
        """Print nothing."""


class Loop:
    """The trainers of one setting, built by their constructor: one for each size of a batch and of its parts."""

    def __init__(self, kind: Any, **settings: Any) -> None:  # noqa: ANN401 - a class of the target
        """Store the class and the settings; a field that the configuration lacks raises an error later."""
        self.kind, self.args = kind, SimpleNamespace(**settings)
        self.trainers: dict[tuple[int, int, int, int], Any] = {}

    def trainer(self, *key: *tuple[int, int, int, int]) -> Any:  # noqa: ANN401 - a trainer
        """The trainer for a number of rows, of micro-batches, of mini-batches, and of responses per prompt."""
        if key not in self.trainers:
            self.trainers[key] = build(self.kind, vars(self.args), *key)
        return self.trainers[key]


def config_of(kind: Any) -> Any:  # noqa: ANN401 - classes of the target
    """The configuration class of a trainer."""
    module = importlib.import_module(kind.__module__.replace("_trainer", "_config"))
    return getattr(module, kind.__name__.replace("Trainer", "Config"))


def accumulated(kind: Any, micro_batches: int, mini_batches: int) -> int:  # noqa: ANN401 - a class of the target
    """The value of ``gradient_accumulation_steps``: micro-batches per mini-batch, or per batch in some releases."""
    of_each = "args.num_mini_batches\n" in inspect.getsource(kind.__init__)
    return micro_batches if of_each else micro_batches * mini_batches


def build(  # noqa: PLR0913 - a trainer's settings and sizes
    kind: Any,  # noqa: ANN401 - a class of the target
    settings: Mapping[str, Any],
    rows: int,
    micro_batches: int,
    mini_batches: int,
    generations: int,
) -> Any:  # noqa: ANN401 - a trainer
    """A trainer for one batch with this number of rows, in equal mini-batches of equal micro-batches."""
    config = config_of(kind)
    known = {f.name for f in dataclasses.fields(config)}
    sizes = {
        "per_device_train_batch_size": rows // (micro_batches * mini_batches),
        "gradient_accumulation_steps": accumulated(kind, micro_batches, mini_batches),
        "num_mini_batches": mini_batches,
        "total_episodes": rows,
        "local_rollout_forward_batch_size": max(1, rows - 1),
        "rloo_k": generations,
    }
    chosen = {name: value for name, value in {**DEFAULTS, **sizes}.items() if name in known}
    args = config(**{"output_dir": tempfile.mkdtemp(), **chosen, **settings})
    shape = make_model().config
    policy, reference = (Policy(shape, TEMPERATURE, trains=trains) for trains in (True, False))
    reward, value = (Scorer(shape, rewards=rewards) for rewards in (True, False))
    dataset = [{"input_ids": [0]}] * (rows // generations)
    given = {
        **dict.fromkeys(("args", "config"), args),
        **dict.fromkeys(("processing_class", "tokenizer"), make_tokenizer()),
        **dict.fromkeys(("model", "policy"), policy),
        **dict.fromkeys(("ref_model", "ref_policy"), reference),
        "reward_model": reward,
        "value_model": value,
        "train_dataset": dataset,
    }
    parameters = inspect.signature(kind.__init__).parameters
    later = {**LATER, **({"tokenizer": None, "processing_class": None} if "tokenizer" in parameters else {})}
    trainer = type(kind.__name__, (kind,), later)(**{name: given[name] for name in parameters if name in given})
    trainer.models = policy, reference, reward, value
    trainer.accelerator = LoopAccelerator(trainer.accelerator)
    return trainer


def run_loop(
    entry: Callable[..., Any], loop: Loop, known: Responses, micro_batches: int, mini_batches: int = 1
) -> dict[str, Any]:
    """Train on one batch; return the differentiated loss, the logs of ``train``, and some of its local variables.

    Tensors with one row per response are in the order of ``known``.
    """
    rows, prompts = len(known.lengths), max(known.numbers) + 1
    trainer = loop.trainer(rows, micro_batches, mini_batches, rows // prompts)
    policy, reference, reward, value = trainer.models
    policy.begin(known)
    reference.begin(known)
    reward.known = value.known = known
    trainer.dataloader = [{"input_ids": queries(prompts)}]
    trainer.accelerator.losses.clear()
    seen: dict[str, Any] = {}
    trainer.log = lambda logs, *_more: seen.update(logs=logs, locals=dict(sys._getframe(1).f_locals))  # noqa: SLF001 - the variables of the loop
    with fixed_permutations():
        entry(trainer)
    order = sampled_order(known, prompts)
    inner = {name: in_order(seen["locals"][name], order) for name in LOCALS if name in seen["locals"]}
    return {"loss": torch.stack(trainer.accelerator.losses).sum(), "logs": seen["logs"], **inner}


def queries(prompts: int) -> Tensor:
    """Prompts ``[P, 2]``, padded at the left as the collator pads them; every other prompt has only one token."""
    return torch.tensor([[FIRST_TOKEN if p % 2 else PADDING, FIRST_PROMPT + p] for p in range(prompts)])[:, :CONTEXT]


def sampled_order(known: Responses, prompts: int) -> list[int]:
    """The row index of each sampled response: the first responses of all prompts, then the second ones, and so on."""
    own = [[row for row, other in enumerate(known.numbers) if other == p] for p in range(prompts)]
    return [own[p][n] for n in range(len(known.numbers) // prompts) for p in range(prompts)]


def in_order(tensor: Tensor, order: list[int]) -> Tensor:
    """The rows of a tensor from the loop, in the order of the batch. Other tensors are returned unchanged."""
    flat = tensor if tensor.dim() == 0 or len(tensor) == len(order) else tensor.flatten()
    if flat.dim() == 0 or len(flat) != len(order):
        return tensor
    back = torch.empty_like(flat)
    back[order] = flat
    return back


@contextmanager
def fixed_permutations() -> Iterator[None]:
    """Seed the permutations of rows, which the loop draws from numpy's global generator."""
    before = np.random.get_state()  # noqa: NPY002 - the generator that the loop uses
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def nothing(*_arguments: object, **_more: object) -> int:
    """Do nothing, in place of garbage collection, which takes longer than the training step."""
    return 0
