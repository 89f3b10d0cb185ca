"""slime's optimizer on Megatron: the weights that a step of a model with experts changes."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.learning_rates import UPDATES, MegatronSchedule
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.slime.learning_rates import schedule_arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

PATH = "slime.backends.megatron_utils.model.setup_model_and_optimizer"

_CLAIMS = claims(
    "model.py, setup_model_and_optimizer, docstring: the constructed optimizer of the model; train_one_step calls its "
    "step",
    conserves=True,
)
_PRODUCED = (
    "Megatron-LM, megatron/core/optimizer/__init__.py, get_megatron_optimizer: a ChainedOptimizer; a model with "
    "experts has one optimizer for its dense weights, then one for those of its experts"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the optimizer that slime sets up, in revisions whose models come wrapped from Megatron."""
    if target.has(PATH) and not target.fails(PATH) and "ddp_config" not in inspect.getsource(target.find(PATH)):
        yield from bindable(target, _boundary())


@dataclass
class OptimizerConfig:
    """A fake of Megatron's configuration of an optimizer, to which slime adds a field."""

    lr: float = 1.0


class Optimizer:
    """A fake of one of Megatron's chained optimizers: gradient descent at rate 1 on its own weights."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        """Store the weights."""
        self.weights, self.config, self.optimizer = weights, OptimizerConfig(), SimpleNamespace(state={})
        self.param_groups: list[dict[str, Any]] = [{"params": weights, "lr": 1.0}]

    def init_state_fn(self, optimizer: Any, _config: object) -> None:  # noqa: ANN401 - the wrapped optimizer
        """Make the state of each weight."""
        optimizer.state.update({number: {} for number, _ in enumerate(self.weights)})

    def step(self) -> tuple[bool, float, int]:
        """Subtract the gradients; return whether it succeeded, a gradient norm and the number of zeros."""
        for weight in self.weights:
            if weight.grad is not None:
                weight.data -= weight.grad
        return True, 0.0, 0


class ChainedOptimizer:
    """A fake of Megatron's optimizer of several optimizers, which steps each of them."""

    def __init__(self, *optimizers: Optimizer) -> None:
        """Store the optimizers."""
        self.chained_optimizers = list(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers."""
        return [group for own in self.chained_optimizers for group in own.param_groups]

    def step(self) -> tuple[bool, float, int]:
        """Step each optimizer."""
        return [own.step() for own in self.chained_optimizers][-1]


def stepped(setup: Callable[..., Any], rows: list[list[float]]) -> list[Tensor]:
    """Set up the optimizer of a model with one weight per row, let it step, and return the weights.

    The second half of the weights are those of experts. All start at 0; each gradient takes a weight to its row.
    """
    weights = [nn.Parameter(torch.zeros(len(row))) for row in rows]
    experts = (len(weights) + 1) // 2
    optimizer = ChainedOptimizer(Optimizer(weights[:experts]), Optimizer(weights[experts:]))
    args = schedule_arguments("constant", 0, UPDATES, 0.0, share=False)
    vars(args).update(
        moe_use_upcycling=False,
        load="checkpoint",
        pretrained_checkpoint=None,
        enable_gloo_process_groups=True,
        use_stateless_adam=False,
    )
    with replaced_globals(
        setup.__globals__,
        get_model=lambda *_about, **_options: [SimpleNamespace()],
        get_model_provider_func=lambda *_about: None,
        ModelType=SimpleNamespace(encoder_or_decoder=None),
        OptimizerConfig=OptimizerConfig,
        OptimizerParamScheduler=MegatronSchedule,
        get_megatron_optimizer=lambda *_about, **_options: optimizer,
    ):
        _, own, _ = setup(args)
    for weight, row in zip(weights, rows, strict=True):
        weight.grad = -torch.tensor(row)
    own.step()
    return [weight.detach() for weight in weights]


def _boundary() -> Boundary:
    return one_call(
        path=PATH,
        stage="batch",
        call=stepped,
        name="stepped",
        arguments={**functions(setup=PATH), "rows": EachRow(RowTokens("rollout_logprob"))},
        produced_by={"rows": _PRODUCED},
        outputs={
            "weights after a step": Output("B T", "nats", "rollout_logprob", at=Use("stepped"), form=Ragged()),
        },
        settings={"a model with experts": {}},
        claims=_CLAIMS,
        reach="a model with experts",
        requires=(no_empty_response,),
    )
