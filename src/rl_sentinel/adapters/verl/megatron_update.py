"""Boundaries of verl's update on Megatron: the gradient, and the labels and masks of multi-token-prediction heads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.causal_model import CausalModel
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor_update import (
    ASSIGN,
    OF_LOSS,
    REQUIRED,
    UPDATE,
    likely_tokens,
    loss_boundary,
    simulated_engine_class,
    update_step,
    updated,
)
from rl_sentinel.adapters.verl.engine import LOSS
from rl_sentinel.adapters.verl.engine_passes import DYNAMIC, PADDED, TRAINER
from rl_sentinel.adapters.verl.megatron_passes import (
    FAKES,
    FORWARD,
    LM_HEAD,
    MODULE,
    NEEDED,
    Chunks,
    GptFake,
    engine_codec,
    megatron_engine,
)
from rl_sentinel.adapters.verl.micro_batches import splits_of_release
from rl_sentinel.adapters.verl.rollout_batch import POSITIONS, position_step
from rl_sentinel.adapters.verl.training_worker import TRAIN
from rl_sentinel.adapters.verl.training_worker import WORKER as TRAINING_WORKER
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: The forward pass that gives labels and a mask to the heads.
PASS = f"{FORWARD}.gptmodel_forward_model_engine"

#: The function that returns the heads' loss, which Megatron collects, as a metric.
METRIC = f"{MODULE}.get_megatron_mtp_loss"

_HEADS = (
    "model_forward.py, gptmodel_forward_model_engine, comment: label and loss_mask are aligned with the sequences of "
    "input_ids; both are rolled to the token before, for Megatron's loss of multi-token prediction"
)

_SETTINGS: Mapping[str, Settings] = {"packed": DYNAMIC, "padded": PADDED}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the update with the PPO loss, and the labels and masks of the heads in releases that have them."""
    needed = (UPDATE, TRAINER, TRAIN, LM_HEAD, LOSS, POSITIONS, ASSIGN, *NEEDED)
    if not all(target.has(path) for path in needed) or target.fails(TRAINING_WORKER) or target.fails(LM_HEAD):
        return
    yield from try_bind(target, LM_HEAD, "policy-loss", lambda: [_update(target)])
    if target.has(METRIC) and target.has(PASS):
        yield from try_bind(target, PASS, "batch", lambda: [_heads(target)])


def training_engine(kind: Any, config: Any, heads: bool) -> Any:  # noqa: ANN401, FBT001 - of the target
    """An engine that can train; with ``heads``, its model predicts further tokens."""
    return megatron_engine(simulated_engine_class(kind), config, heads=heads)


def _engine(target: Target, *, heads: bool) -> Object:
    made = engine_codec(target, LM_HEAD)
    parts = {**made.parts, "heads": Constant(heads)}
    return replace(made, make=training_engine, parts=parts)


def _update(target: Target) -> Boundary:
    more = {"wrap": Constant(Chunks(""))}
    step = update_step(target, UPDATE, TRAINER, _engine(target, heads=False), fakes=FAKES, more=more)
    path = f"{UPDATE} -> {LM_HEAD}.forward_step -> {LOSS}"
    reach = "actor.strategy=megatron; padded: model.use_remove_padding=False"
    return loss_boundary(target, path, step, _SETTINGS, reach)


@dataclass
class Heads:
    """Builds a model with heads that predict further tokens; ``trained`` has their labels and masks by row.

    The label and mask value of a token are stored at the position before this token.
    """

    trained: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __call__(self, model: CausalModel) -> list["ModelWithHeads"]:
        """Return a list with the only chunk of the model."""
        return [ModelWithHeads(model, self.trained)]


class ModelWithHeads:
    """A fake Megatron model with heads; it records the labels and masks that the heads train on."""

    pre_process = post_process = True

    def __init__(self, model: CausalModel, trained: dict[int, tuple[Tensor, Tensor]]) -> None:
        """Wrap the model; each call adds labels and masks to ``trained``."""
        self.body, self.model, self.trained = GptFake(model, ""), model, trained
        self.config = self.body.config
        self.rows = {tokens[0]: row for row, tokens in enumerate(model.sequences)}

    def __call__(self, input_ids: Tensor, *places: Any, labels: Tensor, loss_mask: Tensor, **about: Any) -> Tensor:  # noqa: ANN401 - of GptFake
        """Return the logits; store the labels and the mask."""
        packed = about.get("packed_seq_params")
        starts = packed.cu_seqlens_q_padded.tolist() if packed is not None else [0, input_ids.shape[1]]
        for ids, label, mask in zip(input_ids, labels, loss_mask, strict=True):
            for low, high in pairwise(starts):
                self._store(*(part[low:high] for part in (ids, label, mask)))
        return self.body(input_ids, *places, **about)

    def _store(self, ids: Tensor, labels: Tensor, mask: Tensor) -> None:
        first = int(ids[0])
        if first in self.rows:
            size = len(self.model.sequences[self.rows[first]])
            self.trained[self.rows[first]] = (labels[:size], mask[:size])


def trained_by_heads(**arguments: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - those of ``updated``
    """Run the update; return labels and masks of the responses, and the number of other positions that are trained.

    Rows that the heads do not see have label -1 and mask 0.
    """
    heads, batch = Heads(), arguments["data"].batch
    width = batch["responses"].shape[1]
    sizes = batch["attention_mask"][:, -width:].sum(1).tolist()
    prompts = batch["attention_mask"][:, :-width].sum(1).tolist()
    updated(**arguments, wrap=heads)
    rows: dict[str, list[Any]] = {"tokens": [], "masks": [], "others": []}
    for row, (prompt, size) in enumerate(zip(prompts, sizes, strict=True)):
        missing = torch.full((prompt + size,), -1), torch.zeros(prompt + size)
        labels, mask = heads.trained.get(row, missing)
        rows["tokens"].append(labels[prompt - 1 : prompt + size - 1])
        rows["masks"].append(mask[prompt - 1 : prompt + size - 1])
        rows["others"].append(float(mask[: prompt - 1].ne(0).sum() + mask[-1].ne(0)))  # none follows the last token
    return rows


def _heads(target: Target) -> Boundary:
    fakes = {**FAKES, METRIC: no_metrics}
    step = update_step(target, UPDATE, TRAINER, _engine(target, heads=True), fakes=fakes, call=trained_by_heads)
    others = Output("B", "tokens", "mask_off_replies", at=Use("updated")["others"], form=PerRow("list"))
    return Boundary(
        path=f"{UPDATE} -> {LM_HEAD}.forward_step -> {PASS}",
        stage="batch",
        steps=(position_step(), step),
        unused=frozenset({"logprob", "old_logprob", "ref_logprob", "advantage"}),
        outputs={**row_outputs(Use("updated"), "token", "mask"), "tokens trained outside of the response": others},
        settings={name: {**OF_LOSS, **own} for name, own in splits_of_release(target, _SETTINGS).items()},
        claims=claims(_HEADS, conserves=True),
        reach="actor.strategy=megatron, model.mtp.enable=True, model.mtp.enable_train=True",
        requires=REQUIRED,
        domain=likely_tokens,
    )


def no_metrics(*_about: object) -> dict[str, float]:
    """Return no metrics, in place of Megatron's logged loss of the heads."""
    return {}
