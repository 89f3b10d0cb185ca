"""Boundaries of functions that return one number per token: log-probs, entropy, broadcasts, alignment, turns."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.logit_kernels import FORMULAS, UNITS
from rl_sentinel.adapters.library.arguments import PADDED, SEGMENTS, SIGNAL, numbers, pack
from rl_sentinel.adapters.library.boundary_builder import TOKEN_ADVANTAGE, Compute, bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings

LOGPROB = f"{SIGNAL}.logprob"
SPREAD = f"{SIGNAL}.align.spread"
AT_LAST = f"{SIGNAL}.align.at_last"
ALIGNED = f"{SIGNAL}.align.response_aligned"
SCAN = f"{SIGNAL}.scan"
TURNS = f"{SIGNAL}.segments.turns"

#: Function -> its outputs, in order.
_FROM_LOGITS: Mapping[str, tuple[str, ...]] = {
    "logprobs": ("logprob",),
    "logprobs_and_entropy": ("logprob", "entropy"),
    "logprobs_from_hidden": ("logprob",),
    "logprobs_and_entropy_from_hidden": ("logprob", "entropy"),
    "squared_probabilities_from_hidden": ("pi_squared",),
}

_OUTCOME = {"scope": "sequence", "masked": "yes", "masked-slots": "any"}


def boundaries(target: Target) -> Iterator[Boundary]:
    """Boundaries of log-probs, entropy, broadcasts, alignment and turns."""
    for name, quantities in _FROM_LOGITS.items():
        yield _of_logits(target, f"{LOGPROB}.{name}", quantities)
    yield bind(
        target,
        SPREAD,
        "advantage",
        lambda target, batch, _: {"advantage": target.call(SPREAD, batch.reward, mask=batch.mask)},
        reads="reward mask",
        outputs={"advantage": Output("B T", "reward", "advantage", "sequence")},
        claims={**_OUTCOME, "credit": "outcome", "algorithm": "outcome"},
    )
    yield bind(
        target,
        AT_LAST,
        "reward",
        lambda target, batch, _: {"token_reward": target.call(AT_LAST, batch.reward, mask=batch.mask)},
        reads="reward mask",
        outputs={"token_reward": Output("B T", "reward", "token_reward")},
        claims={**_OUTCOME, "algorithm": "outcome at the last trained token"},
    )
    yield bind(
        target,
        ALIGNED,
        "batch",
        _aligned,
        reads="logprob length",
        outputs={"logprob": Output("B T", "nats", "logprob")},
        settings={"predicts next": {"predicts_next": True}, "in place": {"predicts_next": False}},
        claims={"conserves": "yes", "padding": "zero"},
    )
    yield bind(
        target,
        f"{SCAN}.lined_up -> {SCAN}.put_back",
        "advantage",
        _reorder_and_restore,
        reads="value mask",
        outputs={"advantage": TOKEN_ADVANTAGE},
        claims={"scope": "token", "masked": "yes"},
    )
    for stored in ("padded", "packed"):
        yield bind(
            target,
            TURNS,
            "batch",
            _turns,
            reads="mask length",
            outputs={"turn": Output("B T", "count", "turn")},
            settings={stored: {"stored": stored}},
            claims={"algorithm": "trained tokens before"},
        )


def _of_logits(target: Target, path: str, quantities: tuple[str, ...]) -> Boundary:
    """The boundary of a function of logits, or of hidden states, with these outputs."""
    claims = {"knob:temperature": "0.7|1.6", **{f"algorithm:{n}": FORMULAS[n] for n in quantities}}
    if "pi_squared" not in quantities:
        claims["gradient"] = "own"
    return bind(
        target,
        path,
        "batch",
        _from_logits(path, quantities),
        reads="logits token mask" if "logprob" in quantities else "logits mask",
        outputs={n: Output("B T", UNITS[n], n) for n in quantities},
        settings={"default": numbers(target.find(path))},
        claims=claims,
        kernels=True,
    )


def _from_logits(path: str, quantities: tuple[str, ...]) -> Compute:
    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        passed = {"mask": batch.mask}
        if "logprob" in quantities:
            passed["token"] = batch.token
        if path.endswith("from_hidden"):  # with the identity as the LM head, hidden states are logits
            passed |= {"hidden": batch.logits, "weight": torch.eye(batch.logits.shape[2], dtype=batch.logits.dtype)}
        else:
            passed["logits"] = batch.logits
        result = target.call(path, **passed, **settings)
        return dict(zip(quantities, result if len(quantities) > 1 else (result,), strict=True))

    return compute


def _aligned(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """Align sequences with prompts of different lengths; positions outside of the response have other values."""
    early = int(bool(settings["predicts_next"]))
    prompt = early + torch.arange(batch.rows) % 3
    size = int((prompt - early + batch.length).max())
    sequence = 50.0 + torch.arange(batch.rows * size, dtype=batch.logprob.dtype).reshape(batch.rows, size)
    for row in range(batch.rows):
        first, count = int(prompt[row]) - early, int(batch.length[row])
        sequence[row, first : first + count] = batch.logprob[row, :count]
    lengths = {"prompt_length": prompt, "length": batch.length, "width": batch.width}
    return {"logprob": target.call(ALIGNED, sequence, **lengths, predicts_next=bool(early))}


def _reorder_and_restore(target: Target, batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
    """Move the trained tokens to the front, then restore the order."""
    order = target.call(f"{SCAN}.trained_first", mask=batch.mask)
    moved = target.call(f"{SCAN}.lined_up", batch.value, mask=batch.mask, order=order)
    return {"advantage": target.call(f"{SCAN}.put_back", moved, mask=batch.mask, order=order)}


def _turns(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    """``turn``: at each trained token, the number of trained tokens before it in its row."""
    if settings["stored"] == "padded":
        return {"turn": target.call(TURNS, batch.mask).double()}
    segments = target.call(SEGMENTS, pack(target, batch.mask, batch), batch.length)
    lengths = {"length": batch.length, "width": batch.width}
    return {"turn": target.call(PADDED, target.call(TURNS, segments), **lengths, fill=0).double()}
