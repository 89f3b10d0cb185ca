"""What a recipe's numbers come to together: populations of one, prices that cannot be steered, sizes that are slips."""

import os

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.controller import BOUND
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.character_tokenizer import SIZE

#: The most tokens of a step, a count: of a column of theirs 1 GiB is held, and there are a dozen columns.
TOKENS = 2**28

#: The most weights of a model from scratch, a count: 8 GiB, and its optimizer holds two more for each.
WEIGHTS = 2**31

#: Threads that any machine can start, a count; one of more cores may have four for each.
THREADS = 64


def require_limits(recipe: Recipe, *, claims: dict[str, str]) -> None:
    """Refuse what cannot be learned from, or held.

    Args:
        recipe: the whole of it.
        claims: what the estimator says of itself; nothing, for one of one's own.

    Raises:
        SentinelError: one line on the first number that is too small or too large for the others.
    """
    _require_company(recipe, claims)
    _require_steered(recipe)
    _require_room(recipe)


def _require_company(recipe: Recipe, claims: dict[str, str]) -> None:
    """Refuse a mean or a deviation over one response: its centred reward is 0, and nothing is learned from it."""
    rollout, by = recipe.rollout, recipe.reward.normalisation
    whole, lone = rollout.prompts * rollout.responses, "a lone response has nobody to be compared with"
    if rollout.responses == 1 and (claims.get("baseline") == "relative" or claims.get("lone") == "zero"):
        raise SentinelError(
            f"rollout.responses is 1, expected 2 or more with estimator {recipe.estimator.name}: {lone}"
        )
    if whole == 1 and claims.get("scope") == "batch":
        raise SentinelError(
            f"rollout.prompts and rollout.responses are 1, expected 2 or more of one with estimator "
            f"{recipe.estimator.name}: {lone}"
        )
    for key, over in () if by is None else (("mean", by.mean), ("deviation", by.deviation)):
        if over == "group" and rollout.responses == 1:
            raise SentinelError(
                f"rollout.responses is 1, expected 2 or more with reward.normalisation.{key} group: {lone}"
            )
        if over == "batch" and whole == 1:
            raise SentinelError(
                "rollout.prompts and rollout.responses are 1, expected 2 or more of one with "
                f"reward.normalisation.{key} batch: {lone}"
            )


def _require_steered(recipe: Recipe) -> None:
    """Refuse a target without a price, and a horizon within which one step would end the price."""
    kl, samples = recipe.kl, recipe.rollout.prompts * recipe.rollout.responses
    if kl is None or kl.target is None or kl.horizon is None:
        return
    if not kl.reward and not kl.loss:
        raise SentinelError(
            f"kl.target is {kl.target} without a price, expected kl.reward or kl.loss above 0: it is what is steered"
        )
    if samples >= kl.horizon / BOUND:
        raise SentinelError(
            f"kl.horizon is {kl.horizon}, expected above {samples * BOUND:g}: with {samples} samples a step "
            "(rollout.prompts x rollout.responses) one step would end the price at 0"
        )


def _require_room(recipe: Recipe) -> None:
    """Refuse sizes that are slips."""
    rollout, shape, most = recipe.rollout, recipe.policy, max(THREADS, 4 * (os.cpu_count() or 1))
    if recipe.threads > most:
        raise SentinelError(f"threads is {recipe.threads}, expected at most {most} on this machine; 0 takes its own")
    tokens = rollout.prompts * rollout.responses * rollout.tokens
    if tokens > TOKENS:
        raise SentinelError(
            f"rollout.prompts x rollout.responses x rollout.tokens is {tokens}, expected at most {TOKENS}: "
            "all tokens of a step are held at once"
        )
    if recipe.warm is not None and recipe.warm.rows * shape.positions > TOKENS:
        raise SentinelError(
            f"warm.rows x policy.positions is {recipe.warm.rows * shape.positions}, expected at most {TOKENS}: "
            "all tokens of a step are held at once"
        )
    layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.inner
    weights = shape.layers * layer + (2 * SIZE + shape.positions) * shape.hidden
    if not shape.load and weights > WEIGHTS:
        raise SentinelError(
            f"policy is of {weights} weights, expected at most {WEIGHTS}: lower policy.hidden, layers or inner"
        )
