"""slime's routing replay: the experts that the engine chose, at the positions of packed micro-batches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.slime.packing import (
    PACK,
    PRODUCER,
    WRONG,
    by_place,
    each_rank,
    packing_arguments,
    packing_fakes,
    packs,
    place_numbers,
    settings_of,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

ACTOR = "slime.backends.megatron_utils.actor.MegatronTrainRayActor"
FILL = f"{ACTOR}.fill_routing_replay"
REPLAY = "slime.utils.routing_replay.RoutingReplay"

#: The layers with experts (of three layers, the first is dense), and the number of experts per token.
_EXPERT_LAYERS, _EXPERTS_PER_TOKEN = (1, 2), 2
_LAYERS = 1 + len(_EXPERT_LAYERS)

_REPLAYED = claims(
    "actor.py, fill_routing_replay: the experts that the engine chose are replayed for the tokens of get_batch; the "
    "last token has none",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the replayed experts, in revisions with routing replay."""
    if packs(target) and target.has(FILL) and not target.fails(FILL) and target.has(REPLAY):
        yield from bindable(target, _replayed(target))


def replay_experts(  # noqa: PLR0913 - functions and classes of the target
    fill: Callable[..., Any],
    actor: type,
    replay: Any,  # noqa: ANN401 - a class of the target
    pack: Callable[..., Any],
    iterator: Callable[..., Any],
    data: dict[str, Any],
    cuts: list[list[int]],
    options: Settings,
) -> list[Tensor]:
    """Replay the experts, and decode each response token from the experts at the position that predicts it.

    The expert numbers at a position encode the next token, the layer and the rank of the expert. A token is -1 if its
    experts disagree or come from another layer; the experts of another position give the token of that position.
    """
    experts = {**data, "rollout_routed_experts": [_experts(row) for row in data["tokens"]]}
    numbers = place_numbers(pack, iterator, data, cuts, options)
    recorded: list[list[Tensor]] = []

    original = replay.all_routing_replays
    try:
        with _layer_counts():
            for _ in each_rank(options):
                layers = [_Recorded() for _ in _EXPERT_LAYERS]
                replay.all_routing_replays = layers
                whole = dict(experts)
                fill(_actor(actor, options), [iterator(whole, micro_batch_indices=cuts)], [len(cuts)], whole)
                recorded += [[layer.calls[n] for layer in layers] for n in range(len(cuts))]
    finally:
        replay.all_routing_replays = original
    tokens = by_place([_tokens_of(layers) for layers in recorded], numbers, data["tokens"])
    return [row[-int(n) - 1 : -1] for row, n in zip(tokens, data["response_lengths"], strict=True)]


class _Recorded:
    """A fake replay of one layer, which stores the experts of each micro-batch."""

    def __init__(self) -> None:
        self.calls: list[Tensor] = []

    def record(self, experts: Tensor) -> None:
        """Store the experts of a micro-batch."""
        self.calls.append(experts.clone())


def _experts(tokens: Tensor) -> Tensor:
    """The experts ``[S - 1, layers, experts per token]`` of all positions except the last."""
    kinds = torch.arange(_LAYERS * _EXPERTS_PER_TOKEN).reshape(_LAYERS, _EXPERTS_PER_TOKEN)
    return (tokens[1:].reshape(-1, 1, 1) * kinds.numel() + kinds).int()


def _tokens_of(layers: list[Tensor]) -> Tensor:
    """The tokens that the experts of a micro-batch encode; -1 where they disagree, none if layers differ in length."""
    if len({len(layer) for layer in layers}) > 1:
        return torch.empty(0)
    kinds = torch.arange(_LAYERS * _EXPERTS_PER_TOKEN).reshape(_LAYERS, _EXPERTS_PER_TOKEN)
    chosen = torch.stack(layers, 1).long() - kinds[list(_EXPERT_LAYERS)]  # [N, layers, experts per token]
    same = (chosen == chosen[:, :1, :1]).all(-1).all(-1) & (chosen[:, 0, 0] % kinds.numel() == 0)
    return torch.where(same, chosen[:, 0, 0] // kinds.numel(), WRONG)


def _actor(actor: type, options: Settings) -> Any:  # noqa: ANN401 - of that class
    config = SimpleNamespace(num_layers=_LAYERS, moe_layer_freq=[int(n in _EXPERT_LAYERS) for n in range(_LAYERS)])
    args = SimpleNamespace(
        num_experts=torch.iinfo(torch.int32).max,
        data_pad_size_multiplier=128,
        sequence_parallel=False,
        allgather_cp=options["allgather_cp"],
    )
    return bare_instance(actor, args=args, model=[SimpleNamespace(module=SimpleNamespace(config=config))])


@contextmanager
def _layer_counts() -> Iterator[None]:
    """Replace Megatron's modules that count the layers of a pipeline stage. The only stage has all layers."""
    fakes = {
        "transformer_block": {"get_num_layers_to_build": lambda _config, **_stage: _LAYERS},
        "transformer_layer": {"get_transformer_layer_offset": lambda _config, **_stage: 0},
    }
    names = {f"megatron.core.transformer.{name}": members for name, members in fakes.items()}
    originals = {name: sys.modules.get(name) for name in names}
    for name, members in names.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(members)
    try:
        yield
    finally:
        for name, original in originals.items():
            if original is None:
                del sys.modules[name]
            else:
                sys.modules[name] = original


def _replayed(target: Target) -> Boundary:
    classes = functions(fill=FILL, actor=ACTOR, replay=REPLAY)
    return one_call(
        path=f"{FILL} -> {PACK}",
        stage="batch",
        call=replay_experts,
        name="tokens",
        arguments={**classes, **packing_arguments()},
        fakes=packing_fakes(target),
        produced_by={
            "data": f"{PRODUCER}; slime/rollout/sglang_rollout.py, generate: rollout_routed_experts, one row for each "
            "token but the last"
        },
        unused=frozenset({"mask"}),
        outputs={"token": Output("B T", "", "token", at=Use("tokens"), form=Ragged())},
        settings=settings_of(target),
        claims=_REPLAYED,
        reach="--use-rollout-routing-replay; --context-parallel-size 2, --allgather-cp",
        requires=(no_empty_response,),
    )
