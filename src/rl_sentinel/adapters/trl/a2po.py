"""TRL's A*-PO trainer: its loss regresses the log-ratios of completions on their advantages."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import enough_words, every_row_trains
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself, trains_whole_completions
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.rollout_batch import FILL
from rl_sentinel.adapters.trl.sdpo import Model, first_logit
from rl_sentinel.adapters.trl.tiny_trainer import END, PADDING, WORDS, RowRewards, make_tokenizer
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

MODULE = "trl.experimental.a2po.a2po_trainer"
TRAINER = f"{MODULE}.A2POTrainer"

#: The method that samples and scores.
PREPARES = f"{TRAINER}._prepare_inputs"

#: Log-probs at padding: a real model outputs log-probs there, too.
_PADDING, _REF_PADDING = -7.0, -3.0

_DOC = "a2po_trainer.py, compute_loss: beta2 times the log-ratio of the completion, regressed onto r - V*"
_PRODUCER = (
    "a2po_trainer.py, _prepare_inputs: one completion per prompt, whose mask ends with the first end token; ref_logps "
    "of the reference by the same function; v_star of the prompt"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the second stage's loss, on given inputs and on completions that the trainer samples and scores."""
    path = f"{TRAINER}.compute_loss"
    if not target.has(path) or not target.has(f"{TRAINER}._get_sequence_logps"):
        return
    if why := target.fails(TRAINER):
        yield Unbound(path, "policy-loss", why)
        return
    yield from bindable(target, _loss(path))
    if target.has(PREPARES):
        yield from bindable(target, _sampled(path))


def regression_trainer(kind: Any, beta: float) -> Any:  # noqa: ANN401 - a class of the target
    """A trainer of this class in training mode, created without a call of its constructor."""
    trainer = object.__new__(kind)
    trainer.__dict__ |= {
        "args": SimpleNamespace(beta2=beta),
        "model": SimpleNamespace(training=True),
        "model_kwarg_keys": frozenset({"logits_to_keep"}),
        "_metrics": {"train": defaultdict(list)},
    }
    return trainer


def regress(  # noqa: PLR0913 - the columns of a batch
    entry: Callable[..., Tensor],
    trainer: Any,  # noqa: ANN401 - a class of the target
    tokens: Tensor,
    mask: Tensor,
    logprobs: Tensor,
    ref_logprobs: Tensor,
    rewards: Tensor,
    values: Tensor,
) -> Tensor:
    """Compute the loss of completions that follow a prompt of one token.

    The trainer's ``_get_sequence_logps`` computes the reference log-probs.
    """
    ids = torch.cat([torch.ones_like(tokens[:, :1]), tokens], 1)
    attention = torch.cat([torch.ones_like(mask[:, :1]), mask], 1).int()
    width = tokens.shape[1]
    own, other = (torch.where(mask > 0, x, y) for x, y in ((logprobs, _PADDING), (ref_logprobs, _REF_PADDING)))
    with torch.no_grad():
        ref = trainer._get_sequence_logps(Model(other, tokens), ids, attention, width)  # noqa: SLF001 - as the caller
    inputs = {"input_ids": ids, "attention_mask": attention, "logits_to_keep": width, "ref_logps": ref}
    return entry(trainer, Model(own, tokens), {**inputs, "rewards": rewards, "v_star": values})


class Sampler:
    """A fake trained model for sampling: it returns a known completion for each prompt."""

    training, is_gradient_checkpointing = True, False

    def __init__(self, completions: Tensor) -> None:
        """Store the tokens ``[B, T]`` of the completions, padded at the right."""
        self.completions = completions

    def generate(self, input_ids: Tensor, **_options: object) -> Tensor:
        """Token ids of each prompt, followed by its completion."""
        return torch.cat([input_ids, self.completions], 1)


def regress_sampled(  # noqa: PLR0913 - the columns of a batch
    entry: Callable[..., Tensor],
    prepares: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a class of the target
    mask: Tensor,
    logprobs: Tensor,
    ref_logprobs: Tensor,
    rewards: list[float],
    values: list[float],
) -> Tensor:
    """Let the trainer sample and score a completion per row, and return the loss; each row has a different prompt."""
    last = torch.arange(mask.shape[1]) == mask.sum(1, keepdim=True) - 1
    tokens = torch.where(last, END, torch.where(mask > 0, FILL, PADDING))
    own, other = (torch.where(mask > 0, x, y) for x, y in ((logprobs, _PADDING), (ref_logprobs, _REF_PADDING)))
    prompts = [f"w{row}" for row in range(len(mask))]
    device = SimpleNamespace(
        unwrap_model=itself, state=SimpleNamespace(deepspeed_plugin=None), device=torch.device("cpu")
    )
    vars(trainer).update(
        model=Sampler(tokens),
        ref_model=Model(other, tokens),
        processing_class=make_tokenizer(),
        accelerator=RankAccelerator(device, 0, 1),
        generation_config=None,
        eos_token_ids=[END],
        reward_funcs=[RowRewards("first", 1.0, rewards)],
        reward_weights=torch.ones(1),
        _optimal_values=dict(zip(prompts, values, strict=True)),
    )
    trainer.args.max_prompt_length = None
    return entry(trainer, Model(own, tokens), prepares(trainer, [{"prompt": text} for text in prompts]))


def few_rows(inputs: Inputs) -> str:
    """The reason to skip a batch with more rows than distinct words, since each prompt needs one; empty otherwise."""
    return enough_words(inputs.batch.rows, WORDS)


def trains_all(batch: Batch) -> Batch:
    """Train every token of every completion."""
    return batch if bool((batch.mask == batch.valid).all()) else with_columns(batch, mask=batch.valid)


def _trainer() -> Object:
    return Object(
        regression_trainer,
        {"kind": Constant(Function(TRAINER)), "beta": Knob("beta")},
        at={"kind": "__class__", "beta": "args.beta2"},
    )


def _sampled(path: str) -> Boundary:
    step = Step(
        call=regress_sampled,
        name="loss",
        arguments={
            **functions(entry=path, prepares=PREPARES),
            "trainer": _trainer(),
            "mask": Column("mask", NoPadding(), dtype=torch.int64),
            "logprobs": Column("logprob", NoPadding()),
            "ref_logprobs": Column("ref_logprob", NoPadding()),
            "rewards": Column("reward", PerRow("list")),
            "values": Column("reward_baseline", PerRow("list")),
        },
        fakes={f"{MODULE}.selective_log_softmax": first_logit},
        produced_by={"values": "a2po_trainer.py, _estimate_optimal_values: V* of each prompt"},
    )
    return replace(
        _loss(path),
        path=f"{PREPARES} -> {path}",
        steps=(step,),
        unused=frozenset(),
        settings={"sampled": {"beta": 0.5}},
        requires=(every_row_trains, trains_whole_completions, few_rows),
    )


def _loss(path: str) -> Boundary:
    return one_call(
        path=path,
        stage="policy-loss",
        call=regress,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": _trainer(),
            "tokens": Column("token"),
            "mask": Column("mask", dtype=torch.int64),
            "logprobs": Column("logprob"),
            "ref_logprobs": Column("ref_logprob"),
            "rewards": Column("reward"),
            "values": Column("reward_baseline"),
        },
        fakes={f"{MODULE}.selective_log_softmax": first_logit},
        produced_by={"mask": _PRODUCER, "values": _PRODUCER},
        unused=frozenset({"token"}),
        outputs={"loss": Output("", "", "loss", at=Use("loss"))},
        settings={"default": {"beta": 0.5}},
        claims=claims(_DOC, algorithm="regressed advantage", aggregation="sequence-mean-token-sum"),
        reach="every step of A2POTrainer",
        requires=(every_row_trains, trains_whole_completions),
        domain=trains_all,
    )
