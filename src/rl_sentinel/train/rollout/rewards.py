"""Reward functions of the user: named in a recipe, called concurrently, weighted and summed."""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial, wraps
from numbers import Real
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, ValidationError

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import expected, nearest
from rl_sentinel.train.config.settings import Table
from rl_sentinel.train.config.user_code import call_user_code, describe, import_object
from rl_sentinel.train.rollout.concurrent_calls import Call, TimeLimitError, call_all
from rl_sentinel.train.rollout.interfaces import Outcome

#: Arguments of a reward function besides the columns of the data; a column of such a name is not passed.
ARGUMENTS = ("prompt", "response", "answer", "ended")


#: Characters of an exception that a message shows.
_WIDTH = 300

#: The largest reward, since rewards are float32.
MOST = torch.finfo(torch.float32).max


class RewardFunctionSettings(Table):
    """One reward function, as ``file.py:function``; ``seconds`` limits each call."""

    function: str
    name: str = ""
    weight: float = Field(default=1.0, allow_inf_nan=False)
    seconds: Annotated[float, Field(gt=0, le=1e6)] = 30.0


class RewardFunction(NamedTuple):
    """A resolved reward function; ``passes`` are the arguments that it takes."""

    name: str
    key: str
    function: Any
    weight: float
    seconds: float
    passes: frozenset[str]

    def call(self, values: Mapping[str, Any]) -> Call:
        """The call for one response."""
        kwargs = {name: value for name, value in values.items() if name in self.passes}
        if not inspect.iscoroutinefunction(self.function):
            return Call(partial(call_user_code, self.key, self.function), kwargs, self.seconds)

        @wraps(self.function)
        async def awaited(**kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
            try:
                return await self.function(**kwargs)
            except Exception as error:  # noqa: BLE001 - reported as for a plain function
                return call_user_code(self.key, _reraise, error)

        return Call(awaited, kwargs, self.seconds)


def build_rewards(key: str, value: object, columns: Collection[str]) -> tuple[RewardFunction, ...]:
    """Resolve the reward functions of a recipe.

    Args:
        key: the recipe's key, for messages.
        value: a function as ``file.py:function``, or a list of tables with the keys of ``RewardFunctionSettings``.
        columns: the columns of the data, which a function may take by name.

    Raises:
        SentinelError: if a table is wrong, a function cannot be imported or called with these arguments, or two
            functions have the same name.
    """
    tables = [{"function": value}] if isinstance(value, str) else value
    if not isinstance(tables, (list, tuple)) or not tables or not all(isinstance(t, Mapping) for t in tables):
        one = '"file.py:function"'
        expected = f"a function, such as {one}, or a list of tables, such as [{{ function = {one} }}]"
        raise SentinelError(f"{key} is {describe(value)}, expected {expected}")
    rewards = tuple(_build(f"{key}[{n}]" if len(tables) > 1 else key, t, columns) for n, t in enumerate(tables))
    names = [r.name for r in rewards]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise SentinelError(
            f"{key} has two functions named {twice!r}, expected different names: set `name` for one of them"
        )
    return rewards


def score_all(
    rewards: Sequence[RewardFunction], responses: Sequence[Mapping[str, Any]], *, correct_from: float
) -> list[Outcome]:
    """Score responses, all functions and responses at the same time.

    Args:
        rewards: the functions.
        responses: the arguments for each response, by name.
        correct_from: the least reward of a correct response.

    Returns:
        An outcome per response. Its reward is the weighted sum and its parts are the results of the functions; if a
        function raised, hung or did not return a finite float32 number, it has the failure instead.
    """
    results = call_all([reward.call(values) for values in responses for reward in rewards])
    size = len(rewards)
    rows = [results[start : start + size] for start in range(0, len(results), size)]
    return [_outcome(rewards, row, correct_from) for row in rows]


def _build(key: str, table: Mapping[str, Any], columns: Collection[str]) -> RewardFunction:
    try:
        settings = RewardFunctionSettings.model_validate(dict(table))
    except ValidationError as error:
        first = next((e for e in error.errors() if e["type"] == "extra_forbidden"), error.errors()[0])
        place = ".".join([key, *map(str, first["loc"])])
        if first["type"] == "missing":
            raise SentinelError(f"{place} is missing, expected a value: add {first['loc'][-1]}") from error
        if first["type"] == "extra_forbidden":
            hint = nearest(str(first["loc"][-1]), list(RewardFunctionSettings.model_fields))
            raise SentinelError(f"{place} is unknown, {hint}") from error
        raise SentinelError(f"{place} is {describe(first['input'])}{expected(first['msg'])}") from error
    function = import_object(key, settings.function)
    if not callable(function):
        fix = "write file.py:function or pkg.module:function"
        raise SentinelError(f"{key} {settings.function!r} is {describe(function)}, expected a function: {fix}")
    available = {*ARGUMENTS, *columns}
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        message = f"{key} {settings.function!r} has no signature, expected a Python function: wrap it in one"
        raise SentinelError(message) from error
    keywords = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    parameter_names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    stars = {inspect.Parameter.POSITIONAL_ONLY: "", inspect.Parameter.VAR_POSITIONAL: "*"}
    by_place = [stars[p.kind] + p.name for p in parameters if p.kind in stars]
    if by_place:
        fix = "remove `/` and `*args` from its parameters, or use functools.wraps in the decorator that adds them"
        wrong = f"takes {by_place[0]} by position, expected parameters by name"
        raise SentinelError(f"{key} {settings.function!r} {wrong}: {fix}")
    required = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    for name in sorted(required - (available & parameter_names)):
        takes = ", ".join([*ARGUMENTS, *sorted(set(columns) - set(ARGUMENTS))])
        fix = "rename the parameter, or give it a default"
        raise SentinelError(f"{key} {settings.function!r} takes {name}, expected parameters named {takes}: {fix}")
    name = settings.name or settings.function.rpartition(":")[2]
    passes = frozenset(available if keywords else parameter_names & available)
    place = f"{key} {settings.function!r}"
    return RewardFunction(name, place, function, settings.weight, settings.seconds, passes)


def _outcome(rewards: Sequence[RewardFunction], results: Sequence[Any], correct_from: float) -> Outcome:
    values: list[float] = []
    for reward, result in zip(rewards, results, strict=True):
        failure = _failure(reward, result)
        if failure:
            return Outcome(0.0, correct=False, parts=(0.0,) * len(rewards), failure=failure)
        values.append(float(_number(result)))
    weighted = [reward.weight * value for reward, value in zip(rewards, values, strict=True)]
    if not abs(total := sum(weighted)) <= MOST:
        largest = rewards[max(range(len(rewards)), key=lambda n: abs(weighted[n]))]
        failure = (
            f"{largest.key} with weight {largest.weight:g} makes the sum of rewards {total:g}, expected a magnitude "
            f"of at most {MOST:g} (float32)"
        )
        return Outcome(0.0, correct=False, parts=(0.0,) * len(rewards), failure=failure)
    return Outcome(total, total >= correct_from, parts=tuple(values))


def _number(result: Any) -> Any:  # noqa: ANN401 - what a function returned
    """The Python number of an array or tensor with one entry; any other result unchanged."""
    entries = result.numel() if isinstance(result, torch.Tensor) else getattr(result, "size", 1)
    return result.item() if hasattr(result, "item") and entries == 1 else result


def _failure(reward: RewardFunction, result: object) -> str:
    """Why a result is not a reward, in one line; "" if it is one."""
    if isinstance(result, TimeLimitError):
        late = f" within {reward.seconds:g} s: make the function faster, or raise `seconds`"
        return f"{reward.key} gave no result{f': {result}' if str(result) else late}"
    if isinstance(result, SentinelError):
        return str(result)
    if isinstance(result, BaseException):
        text = " ".join(f"{type(result).__name__}: {result}".split()).removesuffix(":")
        return f"{reward.key} raised {text[:_WIDTH]}"
    number = _number(result)
    is_real = isinstance(number, Real)  # a huge int compares with infinity, and cannot be a float
    if not is_real or not abs(number) < math.inf:
        return f"{reward.key} returned {describe(result)}, expected a finite number"
    if abs(number) > MOST:
        return f"{reward.key} returned {describe(result)}, expected a magnitude of at most {MOST:g} (float32)"
    return ""


def _reraise(error: Exception) -> None:
    raise error
