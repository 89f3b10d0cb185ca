"""The loss of multi-token-prediction heads that verl adds where it replaces the end of Megatron's forward pass."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = "verl.models.mcore.mtp_patch._megatron_gptmodel_postprocess"

#: Heads of the model; head n predicts the token n + 2 positions ahead.
HEADS = 2

#: Loss where a label is not the token that the head predicts.
_OTHER_TOKEN = 20.0

_CLAIMS = claims(
    "mtp_patch.py, torch.sum(mtp_loss) / num_tokens: the cross entropy of each head, averaged over the tokens of "
    "loss_mask",
    algorithm="negative log-likelihood",
    aggregation="token-mean",
)
_PRODUCED = (
    "verl/models/mcore/model_forward.py, gptmodel_forward_model_engine: label and loss_mask of packed sequences, "
    "rolled to the token before; zeros for the prompt"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the replaced end of the forward pass, in releases that train such heads."""
    if target.has(PATH):
        yield from try_bind(target, PATH, "policy-loss", lambda: [_boundary()])


class OutputLayer(Module):
    """A fake output layer with a weight of its own, which a model with tied embeddings does not train."""

    sequence_parallel = False

    def __init__(self, weight: float) -> None:
        """The layer's own weight."""
        super().__init__()
        self.own = weight

    def forward(self, hidden: Tensor, weight: Tensor | None = None, **_options: object) -> tuple[Tensor, None]:
        """The hidden states, whose log-probs are multiplied by the weight, and no bias."""
        return torch.stack([hidden[..., 0] * (self.own if weight is None else weight), hidden[..., 1]], -1), None


class Scaler:
    """A fake of Megatron's scaler, which adds the gradient of the heads' losses in the backward pass."""

    def __init__(self) -> None:
        """No loss yet."""
        self.losses: list[Tensor] = []

    def apply(self, hidden: Tensor, loss: Tensor) -> Tensor:
        """Record a loss; its elements are summed, since each has gradient 1."""
        self.losses.append(loss.sum())
        return hidden


def head_losses(
    postprocess: Callable[..., Any],
    log_probs: list[Tensor],
    masks: list[Tensor],
    tied: bool,  # noqa: FBT001 - a setting
) -> dict[str, Tensor]:
    """The sum of the heads' losses whose gradients are added, and the mean of the logged ones, on packed sequences.

    Each head has the same log-probs. A head's hidden state is the log-prob of a token and the id of this token. With
    ``tied`` embeddings, the model passes their weight to the output layer, whose own weight is another.
    """
    prompt = HEADS + 1  # so that each token of a response is predicted by each head
    sizes = [prompt + len(row) for row in log_probs]
    tokens = torch.cat([torch.arange(1, size + 1) for size in sizes])
    starts = torch.tensor([0, *sizes]).cumsum(0)

    def moved(row: Tensor, places: int) -> Tensor:
        """Values of a response, stored so many positions before their token."""
        return torch.nn.functional.pad(row, (prompt - places, places))

    def states(places: int) -> Tensor:
        values = torch.cat([moved(row, places) for row in log_probs])
        return torch.stack([values, _rolled(tokens, starts, places).to(values)], dim=1).unsqueeze(1)

    main, heads = states(1), [states(2 + head) for head in range(HEADS)]
    scaler, logged = Scaler(), list[Tensor]()
    masked = torch.cat([moved(mask, 1) for mask in masks])
    with replaced_globals(postprocess.__globals__, **_globals(scaler, logged)):
        postprocess(
            _model(heads, tied=tied),
            hidden_states=main,
            input_ids=tokens.unsqueeze(0),
            position_ids=None,
            labels=_rolled(tokens, starts, 1).unsqueeze(0),
            rotary_pos_emb=None,
            rotary_pos_cos=None,
            rotary_pos_sin=None,
            mtp_in_postprocess=True,
            loss_mask=masked.unsqueeze(0),
            packed_seq_params=SimpleNamespace(cu_seqlens_q=starts),
        )
    return {"added": torch.stack(scaler.losses).sum(), "logged": torch.stack(logged).mean()}


def _model(heads: list[Tensor], *, tied: bool) -> SimpleNamespace:
    """A fake of Megatron's model in training, with the hidden states of its heads."""
    return SimpleNamespace(
        training=True,
        post_process=True,
        share_embeddings_and_output_weights=tied,
        shared_embedding_or_output_weight=lambda: torch.tensor(1.0) if tied else None,
        embedding=None,
        cp_group=None,
        config=SimpleNamespace(mtp_num_layers=HEADS, mtp_loss_scaling_factor=1.0, calculate_per_token_loss=False),
        mtp=_Layers(heads),
        output_layer=OutputLayer(2.0 if tied else 1.0),
        compute_language_model_loss=_cross_entropy,
        compute_output_layer_and_language_model_loss=lambda hidden, labels, **_more: _cross_entropy(labels, hidden),
    )


def _globals(scaler: Scaler, logged: list[Tensor]) -> dict[str, Any]:
    """Names in the module -> fakes of Megatron's; logged losses are appended to ``logged``."""

    def save(loss: Tensor, *_about: object, **_more: object) -> None:
        logged.append(loss)

    return {
        "_HAS_PROCESS_MTP_LOSS": False,
        "MTPLossAutoScaler": scaler,
        "MTPLossLoggingHelper": SimpleNamespace(save_loss_to_tracker=save),
        "parallel_state": SimpleNamespace(**parallel_state_of_one_process()),
        "roll_tensor": _roll,
    }


class _Layers:
    """Fake layers of the heads, which append the heads' hidden states to those of the model."""

    def __init__(self, states: list[Tensor]) -> None:
        self.states = states

    def forward(self, **_options: object) -> None:
        """The method whose parameters verl reads."""

    def __call__(self, hidden_states: Tensor, **_options: object) -> Tensor:
        return torch.cat([hidden_states, *self.states])


def _cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """The loss of each position, ``[1, N]``, from the labels ``[1, N]`` and the logits ``[N, 1, 2]``."""
    log_probs, ids = logits.transpose(0, 1).unbind(-1)
    return torch.where(labels == ids, -log_probs, _OTHER_TOKEN)


def _rolled(values: Tensor, starts: Tensor, places: int) -> Tensor:
    """Packed values, moved towards the start of their sequence; the last ones are 0."""
    rows = [torch.nn.functional.pad(row[places:], (0, places)) for row in values.tensor_split(starts[1:-1])]
    return torch.cat(rows)


def _roll(values: Tensor, packed_seq_params: SimpleNamespace, **_options: object) -> tuple[Tensor, Tensor]:
    """As Megatron's function: values ``[1, N]`` moved by one position, and their sum."""
    rolled = _rolled(values[0], packed_seq_params.cu_seqlens_q, 1).unsqueeze(0)
    return rolled, rolled.sum()


def _boundary() -> Boundary:
    result = Use("result")
    return one_call(
        path=PATH,
        stage="policy-loss",
        call=head_losses,
        name="result",
        arguments={
            **functions(postprocess=PATH),
            "log_probs": Column("logprob", Ragged()),
            "masks": Column("mask", Ragged(), torch.int64),
            "tied": Knob("tied"),
        },
        produced_by={"masks": _PRODUCED},
        outputs={
            "loss": Output("", "", "loss", at=result["added"]),
            "logged loss": Output("", "nats", over="live", at=result["logged"]),
        },
        settings={"packed": {"tied": False}, "packed, tied embeddings": {"tied": True}},
        claims=_CLAIMS,
        reach="actor.strategy=megatron, model.mtp.enable_train=True, with a Megatron that has no process_mtp_loss",
        requires=(no_empty_response,),
    )
