"""AReaL's reward model: an update on response pairs, from the collator through the FSDP engine."""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.arguments import MICRO_BATCH_SPEC
from rl_sentinel.adapters.areal.fakes import fsdp_engine, update
from rl_sentinel.adapters.areal.updates import ENGINE, LM_CONFIG, choose_platform
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Object
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.pairs import rows_are_pairs, trained_pairs
from rl_sentinel.adapters.kit.requirements import every_row_trains
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

COLLATE = "areal.trainer.rw_trainer.rw_modeling_collate_fn"
RW = "areal.trainer.rw.rw_engine.RWEngine"
TRAIN = f"{RW}.train_rw"

#: The score is the sum of the log-probs of a response, without a reference.
_SCORES: Settings = {"beta": 1, "reference": False}

_LOGGED = {
    "correct_ratio/avg": "implicit reward accuracy",
    "pos_score/avg": "implicit reward of preferred responses",
    "neg_score/avg": "implicit reward of other responses",
}
_PAIRED = claims("rw_trainer.py, rw_modeling_collate_fn, docstring: chosen first, then rejected", pairing="adjacent")
_LOSS = claims(
    "rw_engine.py: the log-sigmoid of the difference of the scores at the last tokens, averaged over pairs; a "
    "micro-batch counts by its sequences",
    algorithm="bradley-terry",
    denominator="given",
    output_algorithms=_LOGGED,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update.

    There are no boundaries in releases that lack a part of the update, or whose method accepts no batch.
    """
    if not target.has(COLLATE) or not target.has(TRAIN) or not target.has(f"{ENGINE}._compute_logprobs_and_loss"):
        return
    for path in (COLLATE, TRAIN, f"{ENGINE}.train_batch"):
        if why := target.fails(path):
            yield Unbound(TRAIN, "policy-loss", why)
            return
    if _always_raises(target):
        return
    choose_platform(target)
    yield from bindable(target, _update())


def _always_raises(target: Target) -> bool:
    """Whether the method reads ``cu_seqlens`` before the engine packs, which is a KeyError on every padded batch.

    This is the case from release 1.0.4 on. Therefore, these releases have no signal to check.
    """
    source = inspect.getsource(target.find(f"{RW}._train_rw")) if target.has(f"{RW}._train_rw") else ""
    return "_rw_loss_weight(data)" in source


class ScoreModel:
    """A fake reward model: it returns a sequence's score at its last token, and minus the score elsewhere.

    The last token of row ``b`` has the id ``2 b + 3``, which is odd; the other tokens have ``2 b + 2``.
    """

    def __init__(self) -> None:
        """Start without responses; an update sets them."""
        self.responses = list[tuple[list[int], Tensor]]()

    def __call__(self, input_ids: Tensor, **_more: object) -> Any:  # noqa: ANN401 - what a model returns
        """``[1, N, 1]``: the output at each position."""
        ids = input_ids.reshape(1, -1).long()
        # Computed again for each micro-batch, because ``backward`` frees the graph.
        scores = [torch.where(torch.tensor(mask) > 0, row, 0.0).sum() for mask, row in self.responses]
        score = torch.stack(scores)[(ids // 2 - 1).clamp(min=0)]
        return SimpleNamespace(logits=torch.where(ids % 2 == 1, score, -score).unsqueeze(-1))


def reward_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """The engine of :func:`fsdp_engine` with :class:`ScoreModel`."""
    engine = fsdp_engine(owner, config)
    kind: Any = type(engine)
    kind.model = ScoreModel()
    return engine


def train_pairs(
    method: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - AReaL's class
    collate: Callable[..., Any],
    masks: list[list[int]],
    logprobs: list[Tensor],
) -> dict[str, Any]:
    """Update once on pairs, and return the loss and the logs; a score is the sum of the trained tokens' log-probs."""
    trainer.engine.model.responses = list(zip(masks, logprobs, strict=True))
    ids = [[2 * n + 2] * len(row) + [2 * n + 3] for n, row in enumerate(logprobs)]
    items = [{"chosen_ids": ids[n], "rejected_ids": ids[n + 1]} for n in range(0, len(ids), 2)]
    names = tuple(name.removesuffix("/avg") for name in _LOGGED)
    answer = update(method, trainer, collate(items), names)
    return {"loss": answer["loss"], "logged": {name: answer["logged"][f"rw/{name}"] for name in _LOGGED}}


def _update() -> Boundary:
    split = Object(MICRO_BATCH_SPEC, {"n_mbs": MICRO_BATCHES, "granularity": Constant(2)})
    configuration = Object(LM_CONFIG, {"mb_spec": split, "is_critic": Constant(value=True)}, shared=True)
    engine = Object(reward_engine, {"owner": Constant(Function(ENGINE)), "config": configuration})
    result = Use("updated")
    return one_call(
        path=f"{TRAIN} -> {ENGINE}.train_batch",
        stage="policy-loss",
        call=train_pairs,
        name="updated",
        arguments={
            "method": Constant(Function(TRAIN)),
            "trainer": Object(RW, {"engine": engine}, shared=True),
            "collate": Constant(Function(COLLATE)),
            "masks": EachRow(RowTokens("mask", "int")),
            "logprobs": Column("logprob", Ragged(), leaf=True),
        },
        produced_by={
            "logprobs": "rw_trainer.py, train: items with chosen_ids and rejected_ids; fsdp_engine.py, FSDPRWEngine: "
            "micro-batches of whole pairs"
        },
        unused=frozenset({"length"}),
        outputs={"loss": Output("", "", "loss", at=result["loss"])}
        | {n: Output("", "nats", at=result["logged"][n]) for n in _LOGGED},
        settings={"reward model": _SCORES},
        claims=_PAIRED | _LOSS,
        reach="every step of a reward model",
        requires=(rows_are_pairs, every_row_trains),
        domain=trained_pairs,
    )
