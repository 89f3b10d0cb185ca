"""slime's transfer of weights while its engines have a request: the weights that sample each token."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.engines_at_update import Engines, columns
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.slime.weight_fakes import Engine, Layers, Remote, fakes, on_cpu
from rl_sentinel.adapters.slime.weight_updates import FOLDER, NAME, OPTIONS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

OWNER = f"{FOLDER}.update_weight_from_distributed.UpdateWeightFromDistributed"

#: A quantization after which engines process the weights that they have received, as a checkpoint's config.json has it.
_INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"group_size": 1, "symmetric": True}}},
}

_CLAIMS = claims(
    "update_weight_from_distributed.py, update_weights, docstring and comments: pause, then the weights, int4 post "
    "process, and continue",
    conserves=True,
)
_PRODUCED = (
    "slime/rollout/fully_async_rollout.py: a worker keeps trajectories in flight across rollouts; train_async.py: "
    "update_weights while it runs"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the transfer to engines on devices of their own, in revisions whose engines pause for it."""
    if not target.has(f"{OWNER}.update_weights") or target.fails(OWNER):
        return
    owner = target.find(OWNER)
    if "pause_generation" in inspect.getsource(owner):
        processes = "post_process_weights" in inspect.getsource(owner)
        settings = {"slow stage": {"int4": False}, **({"slow stage, int4": {"int4": True}} if processes else {})}
        yield from bindable(target, _boundary(settings))


class Stage(Layers):
    """The first of two pipeline stages; ``passes`` counts how often its weights are read to send them."""

    passes = 0

    def named_parameters(self, *_passed: object, **_options: object) -> Iterator[tuple[str, nn.Parameter]]:
        """The weights by name."""
        self.passes += 1
        yield from super().named_parameters()


class Sampler(Engine):
    """A fake engine with a request, which samples with the weights that it has unless it is paused."""

    def __init__(self, engines: Engines) -> None:
        """Take each part of the weights, and each change of their form, as an update of ``engines``."""
        super().__init__()
        self.pause_generation = Remote(lambda: setattr(engines, "paused", True))
        self.continue_generation = Remote(lambda: setattr(engines, "paused", False))
        change = Remote(lambda **_options: engines.receive())
        self.update_weights_from_distributed = self.post_process_weights = change

    def receive(self, _tensor: Tensor) -> None:
        """The weights that are broadcast were announced before."""


def sampled_at_update(owner: Any, rows: list[dict[str, Any]], int4: bool) -> dict[str, Any]:  # noqa: ANN401, FBT001
    """Update the weights of the engine once per row, while it has a request.

    Returns the log-probs of each row's response, and the version of the weights of each token. Another pipeline stage
    sends as many times as this one. It is slower: it sends right before this stage passes the next barrier.
    """
    answers = []
    for row in rows:
        engines, stage = Engines(row), Stage([torch.zeros(2), torch.ones(2)], NAME)
        sampler = Sampler(engines)

        def barrier(*_passed: object, _stage: Stage = stage, _engines: Engines = engines, **_options: object) -> None:
            if _stage.passes:
                _engines.receive()
            _stage.passes = 0

        names = fakes(sampler)
        names["dist"].barrier = barrier
        modules = [vars(module) for name, module in list(sys.modules.items()) if name.startswith(FOLDER)]
        with replaced_globals(*modules, **names), replaced_globals(vars(torch.cuda), **on_cpu()):
            updater = owner(
                SimpleNamespace(**OPTIONS),
                [stage],
                weights_getter=stage.state_dict,
                model_name="qwen2",
                quantization_config=_INT4 if int4 else None,
            )
            lock = SimpleNamespace(acquire=Remote(lambda: True), release=Remote(lambda: None))
            updater.connect_rollout_engines([sampler], lock)
            stage.passes = 0
            updater.update_weights()
        answers.append(engines.finished())
    return columns(answers)


def _boundary(settings: Mapping[str, Mapping[str, bool]]) -> Boundary:
    return one_call(
        path=f"{OWNER}.update_weights",
        stage="batch",
        call=sampled_at_update,
        name="sampled",
        arguments={
            "owner": Constant(Function(OWNER)),
            "rows": EachRow(Table(row_fields("logprobs", "versions"))),
            "int4": Knob("int4"),
        },
        produced_by={"rows": _PRODUCED},
        outputs=row_outputs(Use("sampled"), "rollout_logprob", "version"),
        settings=settings,
        claims=_CLAIMS,
        reach="Megatron with pipeline stages, without --colocate, with fully_async_rollout.py; int4: a checkpoint in "
        "compressed-tensors",
        requires=(no_empty_response,),
    )
