"""slime's transfer of weights from Megatron to its engines: which weights they have after a step of training."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.slime.weight_fakes import Engine, Layers, Remote, fakes, on_cpu
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

FOLDER = "slime.backends.megatron_utils.update_weight"

#: A module that a transfer imports when it runs, in revisions that have it.
_ITERATOR = f"{FOLDER}.hf_weight_iterator_direct"

#: Class of the transfer -> the setting, and the options that reach it.
CLASSES: Mapping[str, tuple[str, str]] = {
    f"{FOLDER}.update_weight_from_tensor.UpdateWeightFromTensor": ("shared devices", "--colocate"),
    f"{FOLDER}.update_weight_from_distributed.UpdateWeightFromDistributed": ("own devices", "without --colocate"),
}

#: Megatron's name of a weight whose conversion keeps its shape.
NAME = "module.decoder.layers.{}.mlp.linear_fc2.weight"

#: Options of one rank and one engine; a buffer has room for one to three weights of most cases.
OPTIONS: Mapping[str, object] = {
    "update_weight_buffer_size": 12,
    "megatron_to_hf_mode": "raw",
    **dict.fromkeys(
        ("rollout_num_gpus", "rollout_num_gpus_per_engine", "actor_num_nodes", "actor_num_gpus_per_node"), 1
    ),
    **dict.fromkeys(("num_attention_heads", "num_query_groups", "hidden_size", "kv_channels"), 1),
    **dict.fromkeys(("num_experts", "vocab_size", "q_lora_rank"), None),
}

_CLAIMS = claims(
    "docs/en/get_started/usage.md: after training the parameters are synchronized to SGLang; "
    "update_weight_from_tensor.py: update rollout engines; update_weight_from_distributed.py: update distributed "
    "engines",
    conserves=True,
)
_PRODUCED = (
    "slime/backends/megatron_utils/actor.py, init: the class with weights_getter, the actor's weights by name; "
    "update_weights: connect_rollout_engines of new engines, then update_weights, before the first rollout and after "
    "steps of training"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of two transfers with a step of training between them, in revisions that have these classes."""
    for owner in CLASSES:
        if target.has(f"{owner}.update_weights") and not target.fails(owner):
            yield from bindable(target, _boundary(owner))


def weights_after_a_step(owner: Any, rows: list[list[float]]) -> dict[str, list[Tensor]]:  # noqa: ANN401 - of the target
    """Send the weights of a model, train, and send them again; return the weights that the engine has, by layer.

    The model has one layer per row.
    """
    weights = [torch.tensor(row) for row in rows]
    model, engine = Layers(weights, NAME), Engine()
    lock = SimpleNamespace(acquire=Remote(lambda: True), release=Remote(lambda: None))
    with suppress(ModuleNotFoundError):
        importlib.import_module(_ITERATOR)
    modules = [vars(module) for name, module in list(sys.modules.items()) if name.startswith(FOLDER)]
    with replaced_globals(*modules, **fakes(engine)), replaced_globals(vars(torch.cuda), **on_cpu()):
        updater = owner(
            SimpleNamespace(**OPTIONS),
            [model],
            weights_getter=lambda: {f"module.{name}": weight for name, weight in model.state_dict().items()},
            model_name="qwen2",
            quantization_config=None,
        )
        updater.connect_rollout_engines([engine], lock)
        updater.update_weights()
        model.update()
        updater.update_weights()
    return {"logprobs": engine.of_layers(weights)}


def _boundary(owner: str) -> Boundary:
    setting, reach = CLASSES[owner]
    return one_call(
        path=f"{owner}.update_weights",
        stage="batch",
        call=weights_after_a_step,
        name="weights",
        arguments={"owner": Constant(Function(owner)), "rows": EachRow(RowTokens("rollout_logprob"))},
        produced_by={"rows": _PRODUCED},
        outputs=row_outputs(Use("weights"), "rollout_logprob"),
        settings={setting: {}},
        claims=_CLAIMS,
        reach=f"Megatron, {reach}; more weights than --update-weight-buffer-size",
        requires=(no_empty_response,),
    )
