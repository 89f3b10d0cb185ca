"""The warm start: supervised learning on the environment's demonstrations before RL, with cached weights."""

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
from rl_sentinel.train.config.settings import WarmStartSettings
from rl_sentinel.train.model import character_tokenizer, llama
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.rollout.interfaces import Environment
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.fingerprint import weights_digest

#: Returns the folder ``kind/key`` of a cache, and calls a function to fill it if it does not exist.
Cache = Callable[[str, str, Callable[[Path], None]], Path]


def warm_start(
    policy: Policy, environment: Environment, recipe: Recipe, *, cache: Cache, progress: Callable[[int, int], None]
) -> None:
    """Load the weights of the warm start into a policy; train them if they are not cached.

    Args:
        policy: a model from scratch; its weights are overwritten.
        environment: the environment, whose ``warm`` gives demonstrations.
        recipe: the recipe; nothing happens without ``[warm]``.
        cache: the cache of weights.
        progress: called with the number of steps done and the total.

    Raises:
        SentinelError: if the trained weights are not finite.
    """
    settings = recipe.warm
    if settings is None:
        return

    def fill(folder: Path) -> None:
        _train(policy, environment, settings, progress)
        policy.model.zero_grad()  # leftover gradients would change an optimizer restored from a checkpoint
        _require_finite(policy, settings)
        torch.save(policy.model.state_dict(), folder / "weights.pt")

    loaded = weights_digest(policy.model) if recipe.policy.load else ""
    folder = cache("warm", cache_key(recipe, environment, loaded), fill)
    policy.model.load_state_dict(torch.load(folder / "weights.pt", map_location="cpu", weights_only=True))


def cache_key(recipe: Recipe, environment: Environment, loaded: str = "") -> str:
    """The key of a warm start: all settings that it depends on, torch's release, and its source code.

    ``loaded`` is the digest of the weights of ``policy.load``, since the same path may have others later.
    """
    settings = recipe.model_dump(include={"policy", "warm", "environment", "threads"}, mode="json")
    modules = (sys.modules[name] for name in (__name__, type(environment).__module__))
    code = [inspect.getsource(m) for m in (*modules, llama, character_tokenizer, rng)]
    text = json.dumps([torch.__version__, settings, *code, *([loaded] if loaded else [])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _train(
    policy: Policy, environment: Environment, settings: WarmStartSettings, progress: Callable[[int, int], None]
) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.0)
    ramp = max(1, settings.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / ramp, 1.02 - n / settings.steps))
    for step in range(settings.steps):
        token, learned = _batch(policy, environment, settings, step)
        logits = policy(token[:, :-1])
        loss = functional.cross_entropy(logits[learned].float(), token[:, 1:][learned])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, settings.steps)


def _require_finite(policy: Policy, settings: WarmStartSettings) -> None:
    """Reject weights that are not finite before they are cached for other runs."""
    if not all(bool(x.isfinite().all()) for x in policy.model.state_dict().values() if x.is_floating_point()):
        raise SentinelError(
            f"warm.rate is {settings.rate}, expected a lower rate: after the warm start a weight is not finite"
        )


def _batch(policy: Policy, environment: Environment, settings: WarmStartSettings, step: int) -> tuple[Tensor, Tensor]:
    """Tokens of a batch, and True at the positions that predict a token of a response."""
    source = rng.python_rng(settings.seed, "warm", step)
    rows = [environment.warm(source) for _ in range(settings.rows)]  # type: ignore[attr-defined]  # checked by try_environment
    encode = policy.tokenizer.encode
    prompts = [encode(prompt) for prompt, _, _ in rows]
    responses = [encode(text) + ((policy.ends[0],) if ends else ()) for _, text, ends in rows]
    sequences = [p + r for p, r in zip(prompts, responses, strict=True)]
    width = max(len(s) for s in sequences)
    token = torch.tensor([list(s) + [policy.padding] * (width - len(s)) for s in sequences], device=policy.device)
    place = torch.arange(width - 1, device=policy.device)
    first, end = (torch.tensor([len(x) for x in xs], device=policy.device).unsqueeze(1) for xs in (prompts, sequences))
    return token, (place >= first - 1) & (place < end - 1)
