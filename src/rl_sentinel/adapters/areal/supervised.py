"""AReaL's supervised loss on packed sequences, and its logged metrics."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from rl_sentinel.adapters.areal.arguments import packed
from rl_sentinel.adapters.areal.tracked_metrics import exported, tracker_module
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, CumulativeLengths
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.requirements import has_trained_token
from rl_sentinel.adapters.kit.sequences import PackedSequence
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

PATH = "areal.trainer.sft.lm_engine.compute_packed_sft_loss"

_PADDING = (
    "areal/utils/data.py, pad_packed_tensor_dict: padding is an additional sequence without a trained token; the loss "
    "receives it if sequences are split among processes"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss, from log-probs or, in earlier releases, from logits."""
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, _loss(target.find(PATH)))


def logged_loss(loss: Callable[..., Any], **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of the loss
    """Compute a loss; return ``loss``, and ``logged``: the metrics that it logs."""
    tracker = tracker_module()
    exported(tracker)
    return {"loss": loss(**arguments), "logged": exported(tracker)}


def _loss(function: Callable[..., Any]) -> Boundary:
    source = inspect.getsource(function)
    rolls = "roll(loss_mask" in source  # otherwise its caller LMEngine._train_lm does
    data: dict[str, Codec] = {
        "input_ids": Column("token", PackedSequence()),
        "loss_mask": Column("mask", PackedSequence(shift=0 if rolls else 1)),
        "cu_seqlens": CumulativeLengths("total"),
    }
    outputs: dict[str, Codec] = {"logprobs": packed("logprob"), "entropy": packed("entropy")}
    from_logits = "logits" in inspect.signature(function).parameters
    if from_logits:
        outputs = {"logits": Column("logits", PackedSequence(shift=1))}
    result = Use("result")
    logged = {
        "ppl/avg": Output("", "", "perplexity.mean", over="live"),
        "loss/avg": Output("", "nats", over="live"),
    }
    return one_call(
        path=PATH,
        stage="policy-loss",
        call=logged_loss,
        name="result",
        arguments={"loss": Constant(Function(PATH)), **outputs, "input_": Table(data)},
        produced_by={"input_": _PADDING},
        unused=frozenset({"prompt_length", "length"} | ({"entropy", "token"} if not from_logits else set())),
        outputs={"loss": Output("", "", "loss", at=result["loss"])}
        | {
            name: Output("", output.unit, output.quantity, over=output.over, at=result["logged"][name])
            for name, output in logged.items()
        },
        claims=claims(
            "lm_engine.py, compute_packed_sft_loss: divided by the number of trained tokens", aggregation="token-mean"
        ),
        reach="supervised fine-tuning",
        requires=(has_trained_token,),
    )
