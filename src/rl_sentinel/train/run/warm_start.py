"""The warm start: a tiny model learns what the environment shows, before any reward."""

import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model import character_tokenizer, llama
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.rollout.interfaces import Environment
from rl_sentinel.train.run import rng

#: Serves the folder ``kind/key``, and has it filled where it is not there yet.
Kept = Callable[[str, str, Callable[[Path], None]], Path]


def started(
    policy: Policy, environment: Environment, recipe: Recipe, *, kept: Kept, told: Callable[[int, int], None]
) -> None:
    """Give the policy the weights of its warm start, from the cache where it was made before.

    Args:
        policy: a model from scratch; its weights are overwritten.
        environment: what shows the behaviours to learn.
        recipe: the warm start's numbers, of which the key in the cache is made.
        kept: the cache.
        told: called with steps done and steps in all.

    Raises:
        SentinelError: if the environment has nothing to show, or weights are no numbers after it.
    """
    if recipe.warm is None:
        return
    if not hasattr(environment, "warm"):
        raise SentinelError(
            f"environment {recipe.environment.name} has no warm(), expected one where warm is asked for"
        )

    def fill(folder: Path) -> None:
        _learned(policy, environment, recipe, told)
        policy.model.zero_grad()  # an optimizer that is taken up from a checkpoint must find none
        _require_learned(policy, recipe)
        torch.save(policy.model.state_dict(), folder / "weights.pt")

    folder = kept("warm", key(recipe, environment), fill)
    policy.model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))


def key(recipe: Recipe, environment: Environment) -> str:
    """What a warm start is known by: the numbers that it depends on, torch's release, and the code that computes it."""
    known = recipe.model_dump(include={"policy", "warm", "environment", "threads"}, mode="json")
    modules = (sys.modules[name] for name in (__name__, type(environment).__module__))
    code = [inspect.getsource(m) for m in (*modules, llama, character_tokenizer, rng)]
    text = json.dumps([torch.__version__, known, *code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _learned(policy: Policy, environment: Environment, recipe: Recipe, told: Callable[[int, int], None]) -> None:
    warm = recipe.warm
    assert warm is not None  # noqa: S101 - asked before
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=warm.rate, betas=(0.9, 0.98), weight_decay=0.0)
    ramp = max(1, warm.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / ramp, 1.02 - n / warm.steps))
    for step in range(warm.steps):
        token, learned = _shown(policy, environment, recipe, step)
        logits = policy(token[:, :-1])
        loss = functional.cross_entropy(logits[learned].float(), token[:, 1:][learned])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        told(step + 1, warm.steps)


def _require_learned(policy: Policy, recipe: Recipe) -> None:
    """Refuse weights that are no numbers, before they are kept for other runs."""
    if not all(bool(x.isfinite().all()) for x in policy.model.state_dict().values() if x.is_floating_point()):
        warm = recipe.warm
        raise SentinelError(
            f"warm.rate is {warm.rate if warm else None}, expected one that leaves numbers: after the warm start a "
            "weight is not finite, take a lower one"
        )


def _shown(policy: Policy, environment: Environment, recipe: Recipe, step: int) -> tuple[Tensor, Tensor]:
    """Tokens of a batch, and which of their positions predict a token of a response."""
    source = rng.plain(recipe.warm.seed, "warm", step)  # type: ignore[union-attr]  # asked before
    rows = [environment.warm(source) for _ in range(recipe.warm.rows)]  # type: ignore[union-attr,attr-defined]  # as above
    read = [policy.text.ids(prompt) for prompt, _, _ in rows]
    said = [policy.text.ids(text) + ((policy.end,) if ends else ()) for _, text, ends in rows]
    whole = [r + s for r, s in zip(read, said, strict=True)]
    width = max(len(w) for w in whole)
    token = torch.tensor([list(w) + [policy.padding] * (width - len(w)) for w in whole])
    place = torch.arange(width - 1)
    first, end = (torch.tensor([len(x) for x in xs]).unsqueeze(1) for xs in (read, whole))
    return token, (place >= first - 1) & (place < end - 1)
