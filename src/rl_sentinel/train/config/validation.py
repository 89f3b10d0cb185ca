"""Validate a recipe as a whole: settings that contradict each other, groups of one response, oversized batches."""

import os

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import nearest
from rl_sentinel.signal.controller import BOUND
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.settings import RewardSettings, RolloutSettings
from rl_sentinel.train.model.character_tokenizer import VOCABULARY_SIZE
from rl_sentinel.train.rollout.engine.http import parse_url, parse_urls

#: The most tokens of a step, a count: 1 GiB per float32 column, of which there are about twelve.
MAX_TOKENS = 2**28

#: The most weights of a model from scratch, a count: 8 GiB; AdamW keeps two more numbers per weight.
MAX_WEIGHTS = 2**31

#: A number of threads that any machine can start, a count; above 16 cores the bound is four per core.
MAX_THREADS = 64


def validate_recipe(
    recipe: Recipe, *, claims: dict[str, str], outcome: bool, reads: frozenset[str], parts: tuple[str, ...]
) -> None:
    """Reject settings that do not fit together.

    Args:
        recipe: the recipe.
        claims: the estimator's ``CLAIMS``; empty for user code without them.
        outcome: whether the estimator gives one advantage per response.
        reads: the columns that the estimator and the loss read.
        parts: the names of the parts of the environment's reward.

    Raises:
        SentinelError: one line on the first conflict.
    """
    _validate_pairs(recipe, outcome=outcome)
    _validate_populations(recipe, claims)
    _validate_kl_control(recipe)
    _validate_sizes(recipe)
    _validate_columns(recipe, reads, parts)
    _validate_evaluation(recipe)


def require_weights(recipe: Recipe, weights: tuple[float, ...]) -> None:
    """Require that an estimator of reward parts does not ignore their ``weights`` in the environment's reward.

    Raises:
        SentinelError: if a weight is neither 1 nor that of the estimator.
    """
    own = recipe.estimator.parameters.get("weight")
    own = tuple(own) if isinstance(own, (list, tuple)) else ()
    if set(weights) <= {1.0} or weights == own:
        return
    raise SentinelError(
        f"environment.reward has weights {list(weights)}, expected 1 for each with estimator {recipe.estimator.name}, "
        f"which weighs the parts itself: remove them{f', or set them to estimator.weight, {list(own)}' if own else ''}"
    )


def _validate_pairs(recipe: Recipe, *, outcome: bool) -> None:
    """Reject pairs of settings that contradict each other."""
    kl, rollout, update = recipe.kl, recipe.rollout, recipe.update
    if kl is not None and kl.reward and kl.loss:
        raise SentinelError(
            f"kl.reward is {kl.reward} and kl.loss is {kl.loss}, expected one of them to be 0: "
            "the KL is penalized once, in the reward or in the loss"
        )
    if kl is not None and (kl.target is None) != (kl.horizon is None):
        keys = ("kl.target", "kl.horizon") if kl.horizon is None else ("kl.horizon", "kl.target")
        raise SentinelError(f"{keys[0]} is set without {keys[1]}, expected both or neither: set {keys[1]} too")
    if not outcome and rollout.turns > 1 and not rollout.merged:
        raise SentinelError(
            f"rollout.merged is false with {rollout.turns} turns, expected true: estimator {recipe.estimator.name} "
            "assigns credit within one row, and only a merged row has all turns"
        )
    if rollout.staleness and not recipe.correction.weight and not recipe.correction.reject:
        raise SentinelError(
            f"rollout.staleness is {rollout.staleness}, expected a correction of old responses: set correction.weight "
            "or correction.reject"
        )
    _validate_url(rollout)
    if recipe.chat is not None and recipe.warm is not None:
        raise SentinelError(
            "[chat] and [warm] are both set, expected only one of them: remove one, because the demonstrations of "
            "a warm start are not rendered with the chat template"
        )
    if update.prompts > rollout.prompts:
        raise SentinelError(f"update.prompts is {update.prompts}, expected at most {rollout.prompts} (rollout.prompts)")
    if recipe.policy.hidden % (part := 2 * recipe.policy.heads):
        raise SentinelError(
            f"policy.hidden is {recipe.policy.hidden}, expected a multiple of {part} (2 x policy.heads)"
        )


def _validate_url(rollout: RolloutSettings) -> None:
    """Reject an address that the engine does not use, and a missing or invalid address that it needs."""
    if rollout.url and rollout.engine == "process":
        raise SentinelError(
            f"rollout.url is {rollout.url!r} with engine process, expected no address: set rollout.engine to http or "
            "vllm, or remove rollout.url"
        )
    if rollout.engine == "process":
        return
    if not rollout.url:
        raise SentinelError(
            f"rollout.url is {rollout.url!r} with engine {rollout.engine}, expected the address of the server, such as "
            "http://127.0.0.1:8000"
        )
    (parse_urls if rollout.engine == "vllm" else parse_url)(rollout.url)


def _validate_populations(recipe: Recipe, claims: dict[str, str]) -> None:
    """Reject a mean or deviation over one response: the centered reward is 0, and nothing is learned from it."""
    rollout, normalization = recipe.rollout, recipe.reward.normalization
    samples, reason = rollout.prompts * rollout.responses, "a single response cannot be compared with another response"
    small_group = f"rollout.responses is {rollout.responses}, expected 2 or more with"
    small_batch = "rollout.prompts x rollout.responses is 1, expected 2 or more with"
    if rollout.responses == 1 and (claims.get("baseline") == "relative" or claims.get("lone") == "zero"):
        raise SentinelError(f"{small_group} estimator {recipe.estimator.name}: {reason}")
    if samples == 1 and claims.get("scope") == "batch":
        raise SentinelError(f"{small_batch} estimator {recipe.estimator.name}: {reason}")
    for key in () if normalization is None else ("mean", "deviation"):
        over = getattr(normalization, key)
        if over == "group" and rollout.responses == 1:
            raise SentinelError(f"{small_group} reward.normalization.{key}='group': {reason}")
        if over == "batch" and samples == 1:
            raise SentinelError(f"{small_batch} reward.normalization.{key}='batch': {reason}")


def _validate_kl_control(recipe: Recipe) -> None:
    """Reject a KL target without a coefficient, and a horizon so short that one step could set the coefficient to 0."""
    kl, samples = recipe.kl, recipe.rollout.prompts * recipe.rollout.responses
    if kl is None or kl.target is None or kl.horizon is None:
        return
    if not kl.reward and not kl.loss:
        raise SentinelError(
            f"kl.target is {kl.target} with kl.reward and kl.loss 0, expected kl.reward or kl.loss above 0: "
            "the target adapts one of these coefficients"
        )
    if samples >= kl.horizon / BOUND:
        raise SentinelError(
            f"kl.horizon is {kl.horizon}, expected above {samples * BOUND:g}: with {samples} samples per step "
            "(rollout.prompts x rollout.responses) one update could bring the coefficient to 0 or below"
        )


def _validate_sizes(recipe: Recipe) -> None:
    """Reject too many threads, and sizes that exceed the memory of any machine."""
    rollout, shape = recipe.rollout, recipe.policy
    max_threads = max(MAX_THREADS, 4 * (os.cpu_count() or 1))
    if recipe.threads > max_threads:
        raise SentinelError(
            f"threads is {recipe.threads}, expected at most {max_threads} on this machine: 0 uses torch's default"
        )
    tokens = rollout.prompts * rollout.responses * rollout.tokens
    if tokens > MAX_TOKENS:
        raise SentinelError(
            f"rollout.prompts x rollout.responses x rollout.tokens is {tokens}, expected at most {MAX_TOKENS}: "
            "all tokens of a step are in memory at once"
        )
    if recipe.warm is not None and recipe.warm.rows * shape.positions > MAX_TOKENS:
        raise SentinelError(
            f"warm.rows x policy.positions is {recipe.warm.rows * shape.positions}, expected at most {MAX_TOKENS}: "
            "all tokens of a step are in memory at once"
        )
    layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.inner
    weights = shape.layers * layer + (2 * VOCABULARY_SIZE + shape.positions) * shape.hidden
    if not shape.load and weights > MAX_WEIGHTS:
        raise SentinelError(
            f"policy has {weights} weights, expected at most {MAX_WEIGHTS}: lower policy.hidden, layers, inner or "
            "positions"
        )


def _validate_evaluation(recipe: Recipe) -> None:
    """Reject a pass@k of more responses than are sampled, and a metric that is not computed."""
    evaluation = recipe.evaluation
    if evaluation is None:
        return
    if any(k > evaluation.responses for k in evaluation.k):
        raise SentinelError(
            f"evaluation.k is {list(evaluation.k)}, expected at most evaluation.responses, {evaluation.responses}: "
            "pass@k is estimated from that many samples per task"
        )
    metrics = ["accuracy", "reward", *(f"pass@{k}" for k in evaluation.k)]
    if evaluation.best not in metrics:
        raise SentinelError(f"evaluation.best {evaluation.best!r} is unknown, {nearest(evaluation.best, metrics)}")


def _validate_columns(recipe: Recipe, reads: frozenset[str], parts: tuple[str, ...]) -> None:
    """Reject settings that do not fit the columns that are read."""
    estimator, rollout = recipe.estimator.name, recipe.rollout
    if "value" in reads and recipe.critic is None:
        raise SentinelError(
            f"critic is missing, expected a critic with estimator {estimator}, which reads values: add [critic] with "
            "its rate"
        )
    if "value" not in reads and recipe.critic is not None:
        raise SentinelError(
            f"critic is set, expected no critic with estimator {estimator}, which reads no values: remove [critic]"
        )
    if "chosen" in reads and recipe.loss.chosen is None:
        raise SentinelError(
            f"loss.chosen is missing, expected a choice of tokens with loss {recipe.loss.name}: set loss.chosen, such "
            'as loss.chosen = { name = "largest", share = 2e-4 }'
        )
    if "chosen" not in reads and recipe.loss.chosen is not None:
        raise SentinelError(
            f"loss.chosen is set, expected no loss.chosen with loss {recipe.loss.name}, which does not read it: "
            "remove it"
        )
    if "reward_parts" in reads and not parts:
        raise SentinelError(
            f"environment {recipe.environment.name} has no reward parts, expected at least one with estimator "
            f"{estimator}: choose an environment with Environment.parts, or another estimator"
        )
    if "reward_parts" in reads and recipe.kl is not None and recipe.kl.reward:
        raise SentinelError(
            f"kl.reward is {recipe.kl.reward}, expected 0 with estimator {estimator}, which reads reward parts only: "
            "set kl.loss instead"
        )
    if "reward_baseline" in reads and recipe.reward != RewardSettings():
        raise SentinelError(
            f"reward is set with estimator {estimator}, expected no [reward]: the baseline, which is the reward of the "
            "greedy response, is not shaped"
        )
    if "turn" in reads and rollout.turns > 1 and not rollout.merged:
        raise SentinelError(
            f"rollout.merged is false with {rollout.turns} turns, expected true: the estimator or the loss reads turn "
            "numbers, and only a merged row has all turns"
        )
