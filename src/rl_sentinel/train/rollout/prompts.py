"""Draw tasks and encode their prompts, which must leave room for a response."""

import heapq

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.policy import Tokenizer
from rl_sentinel.train.rollout.interfaces import Environment, Task
from rl_sentinel.train.run import rng

#: How many of the longest prompts are encoded before the first step in any case, a count.
LONGEST = 8


def draw_task(environment: Environment, seed: int, step: int, number: int, *, prompts: int) -> Task:
    """The task of a step's prompt ``number``: the next task of a data set, or a random task."""
    numbered = getattr(environment, "numbered_task", None)
    if numbered is None:
        return environment.task(rng.python_rng(seed, "task", step, number))
    task: Task = numbered(step * prompts + number, seed)
    return task


def encode_prompt(
    environment: Environment, tokenizer: Tokenizer, task: Task, tokens: int
) -> tuple[str, tuple[int, ...]]:
    """The text of a task's prompt and its token ids; a response of ``tokens`` tokens must fit after it.

    Raises:
        SentinelError: if the prompt is empty, has an unknown character, or leaves no room for the response.
    """
    render = getattr(environment, "text", lambda task: task.prompt)
    text, source = str(render(task)), f" ({task.source})" if task.source else ""
    ids = encode_text(tokenizer, text, source)
    if not ids:
        raise SentinelError(f"prompt of the environment{source} is {text!r}, expected one or more tokens")
    require_length(tokenizer, len(ids), tokens, what="rollout.tokens", source=source)
    return text, ids


def require_room(environment: Environment, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """Check before the first step that no prompt of a data set is too long for the run's steps.

    Only prompts that may be too long are encoded: texts with more bytes than half of the free positions, since a token
    has at least one byte; and the longest texts, which show whether a chat template makes them much longer.

    Raises:
        SentinelError: if a prompt leaves no room for a response; the message names its ``Task.source``.
    """
    size, rollout = getattr(environment, "size", None), recipe.rollout
    if size is None or tokenizer.positions is None or not hasattr(environment, "numbered_task"):
        return
    most, sizes = (tokenizer.positions - rollout.tokens) / 2, list[tuple[int, int]]()
    for number in range(min(size, recipe.steps * rollout.prompts)):
        task = draw_task(environment, recipe.seed, 0, number, prompts=0)
        contents = [message["content"] for message in task.messages] or [task.prompt]
        sizes.append((sum(len(content.encode(errors="replace")) for content in contents), number))
    longest = {number for _, number in heapq.nlargest(LONGEST, sizes)}
    for number in [n for length, n in sizes if length > most or n in longest]:
        encode_prompt(environment, tokenizer, draw_task(environment, recipe.seed, 0, number, prompts=0), rollout.tokens)


def require_length(  # noqa: PLR0913 - the sizes, and their names for the message
    tokenizer: Tokenizer, before: int, tokens: int, *, what: str, source: str = "", later: bool = False
) -> None:
    """Reject a sequence longer than the model's positions.

    Args:
        tokenizer: the model's tokenizer.
        before: tokens of the prompt and, in a later turn, of the responses and replies so far.
        tokens: tokens that may follow.
        what: the name of ``tokens`` in the message.
        source: where the prompt is from, for the message.
        later: whether it is a later turn.

    Raises:
        SentinelError: if it is too long.
    """
    if tokenizer.positions is not None and before + tokens > tokenizer.positions:
        text = f"{before} tokens of prompt, responses and replies" if later else f"a prompt of {before} tokens"
        fix = f"reduce {what}, shorten the prompt" if before < tokenizer.positions else "shorten or remove the prompt"
        fix = f"reduce {what} or rollout.turns, shorten the environment's replies" if later else fix
        raise SentinelError(
            f"{what} is {tokens} after {text}{source}, expected at most {tokenizer.positions} in "
            f"total: {fix}, or raise policy.positions (with policy.load the model's own limit applies)"
        )


def encode_text(tokenizer: Tokenizer, text: str, source: str = "") -> tuple[int, ...]:
    """Encode a text of the environment; ``source`` tells the error message where the text is from.

    Raises:
        SentinelError: if the tokenizer cannot encode the text.
    """
    try:
        return tokenizer.encode(text)
    except SentinelError as error:
        raise SentinelError(
            f"{error}: change the text of the environment{source} or chat.template, or load a model with more tokens "
            "(policy.load)"
        ) from error
