"""The policy: a model with its tokenizer; and the copies from which a run samples and with which it compares."""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.character_tokenizer import VOCABULARY_SIZE, CharacterTokenizer
from rl_sentinel.train.model.chat_template import Message
from rl_sentinel.train.model.device import resolve_device
from rl_sentinel.train.model.llama import Llama, Shape
from rl_sentinel.train.model.readout import Readout
from rl_sentinel.train.run.distributed import Ranks


class Tokenizer(Protocol):
    """Convert text to token ids and back."""

    @property
    def padding(self) -> int:
        """The id of padding."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end a response; the first is the usual one."""

    @property
    def end_texts(self) -> tuple[str, ...]:
        """The texts of the ids in ``ends``."""

    @property
    def positions(self) -> int | None:
        """The longest sequence of the model, in tokens; None if it is unlimited."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without end tokens."""

    def render(self, messages: Sequence[Message], template: str | None) -> str:
        """Render a conversation with a Jinja template, or with the tokenizer's own template."""


class Policy:
    """A language model and its tokenizer; it is called with the arguments of ``Llama.forward``.

    With ``single_pass``, whole sequences go through the model at once, as FSDP requires; otherwise equal prompts are
    prefilled once.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, *, precision: str = "fp32") -> None:
        """Store the model, the tokenizer, and the recipe's ``policy.precision``; count the weights."""
        self.model, self.tokenizer = model, tokenizer
        self.padding, self.ends = tokenizer.padding, tokenizer.ends
        self.precision, self.single_pass = precision, False
        self.weights = sum(weight.numel() for weight in model.parameters())

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        head = self.model.head  # a walk over all modules takes longer
        return head.device if isinstance(head, Tensor) else next(self.model.parameters()).device

    def __call__(self, token: Tensor, **kwargs: Any) -> Tensor:  # noqa: ANN401 - the model's own keywords
        """Logits of the next token at each position, ``[B, S, V]``, or the result of the keyword ``of``."""
        with self._autocast():
            return self.model(token, **kwargs)  # type: ignore[no-any-return]  # modules are untyped

    def read(self, states: Tensor, of: Readout) -> Tensor:
        """Apply ``of`` to hidden states that the model returned; the weights must not be sharded."""
        with self._autocast():
            return of(states, self.model.head)  # type: ignore[arg-type]  # as above

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def new_cache(self, width: int) -> Any:  # noqa: ANN401 - the model's own kind of cache
        """An empty KV cache for ``width`` tokens."""
        return self.model.new_cache(width)  # type: ignore[operator]  # as above

    def frozen_copy(self) -> "Policy":
        """A copy without gradients, such as a reference policy."""
        return Policy(copy.deepcopy(self.model).requires_grad_(False), self.tokenizer, precision=self.precision)  # noqa: FBT003 - torch's own


class Models(NamedTuple):
    """The policy that is trained, the unsharded policy that samples, and the reference.

    The first two are the same object if one process trains and samples in turn.
    """

    policy: Policy
    sampler: Policy
    reference: Policy | None


def init_policy(recipe: Recipe) -> Policy:
    """A tiny Llama from scratch, initialized with the seed of the warm start or, without one, of the recipe."""
    shape = recipe.policy
    torch.default_generator.manual_seed(recipe.seed if recipe.warm is None else recipe.warm.seed)
    sizes = {name: getattr(shape, name) for name in ("hidden", "layers", "heads", "inner", "positions")}
    model = Llama(Shape(vocabulary=VOCABULARY_SIZE, **sizes))
    return Policy(
        model.to(resolve_device(shape.device)), CharacterTokenizer(shape.positions), precision=shape.precision
    )


def build_models(policy: Policy, recipe: Recipe, ranks: Ranks) -> Models:
    """Build policy, sampler and, with a KL, reference.

    Policy and reference are sharded over all ranks. The sampler is the policy itself; with several ranks or with
    staleness it is a whole copy.
    """
    if recipe.policy.recompute:
        policy.model.enable_recompute()  # type: ignore[operator]  # modules are untyped
        policy.single_pass = True  # layers can be computed again only without a cache
    reference = None if recipe.kl is None else policy.frozen_copy()
    if reference is not None:
        reference.single_pass = policy.single_pass
        _shard(reference, ranks)  # before the next copy, so that no more than two are whole at a time
    if ranks.size == 1 and not recipe.rollout.staleness:
        return Models(policy, policy, reference)
    sampler = policy.frozen_copy()
    _shard(policy, ranks)
    return Models(policy, sampler, reference)


def _shard(policy: Policy, ranks: Ranks) -> None:
    """Shard a policy over all ranks; it is unchanged on a single rank."""
    if ranks.size > 1:
        ranks.shard_model(policy.model, policy.model.layers)  # type: ignore[arg-type]  # modules are untyped
        policy.single_pass = True
