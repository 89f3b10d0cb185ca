"""The policy: a model, the text it speaks, and what an engine and an update ask of it."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.character_tokenizer import Characters
from rl_sentinel.train.model.llama import Llama, Shape
from rl_sentinel.train.run.distributed import Ranks


class Text(Protocol):
    """Text to token ids and back."""

    @property
    def padding(self) -> int:
        """The id that stands where there is no token."""

    @property
    def end(self) -> int:
        """The id that ends a response."""

    @property
    def positions(self) -> int | None:
        """The longest sequence that the model reads, in tokens; None where nothing bounds it."""

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text."""

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids."""


class Models(NamedTuple):
    """The policy that learns, the same in one piece where it samples, and the reference that it is compared with.

    Where one process trains, and samples in step, the first two are one.
    """

    policy: "Policy"
    sampler: "Policy"
    reference: "Policy | None"


class Policy:
    """A model of logits with its text; called as ``llama.Llama`` is.

    ``at_once`` has sequences scored by one pass, as a sharded model wants; else their prompts are read apart, once.
    """

    def __init__(self, model: nn.Module, text: Text, *, precision: str = "fp32") -> None:
        """Both are kept as they are; ``precision`` is that of the recipe."""
        self.model, self.text = model, text
        self.padding, self.end = text.padding, text.end
        self.precision, self.at_once = precision, False

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    def __call__(self, token: Tensor, **how: Any) -> Tensor:  # noqa: ANN401 - the model's own keywords
        """Logits of what follows each token, ``[B, S, V]``."""
        with torch.autocast(token.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            return self.model(token, **how)  # type: ignore[no-any-return]  # modules are untyped

    def memory(self, width: int) -> Any:  # noqa: ANN401 - the model's own kind of cache
        """An empty cache of keys and values."""
        return self.model.memory(width)  # type: ignore[operator]  # as above

    def copied(self) -> "Policy":
        """A frozen copy that stays as it is: a reference."""
        return Policy(copy.deepcopy(self.model).requires_grad_(False), self.text, precision=self.precision)  # noqa: FBT003 - torch's own


def from_scratch(recipe: Recipe) -> Policy:
    """A tiny Llama with weights drawn from the warm start's seed, or the recipe's own where there is none."""
    shape, text = recipe.policy, Characters(recipe.policy.positions)
    torch.default_generator.manual_seed(recipe.seed if recipe.warm is None else recipe.warm.seed)
    sizes = {name: getattr(shape, name) for name in ("hidden", "layers", "heads", "inner", "positions")}
    return Policy(Llama(Shape(vocabulary=text.size, **sizes)), text, precision=shape.precision)


def spread(policy: Policy, recipe: Recipe, ranks: Ranks) -> Models:
    """The models of a run: the policy over all ranks, in one piece where it samples, and as it is now for reference."""
    reference = None if recipe.kl is None else policy.copied()
    if ranks.size == 1 and not recipe.rollout.staleness:
        return Models(policy, policy, reference)
    sampler = policy.copied()
    if ranks.size > 1:
        ranks.sharded(policy.model, policy.model.layers)  # type: ignore[arg-type]  # modules are untyped
        policy.at_once = True
        if reference is not None:
            reference.at_once = True  # the same rounding, so that their KL begins at exactly 0
    return Models(policy, sampler, reference)
