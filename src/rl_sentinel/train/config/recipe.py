"""Recipes: what is trained, on what, and how, as TOML; strict, with overrides from the command line."""

import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.normalisation import Over
from rl_sentinel.signal.reduce import Mode

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
#: What torch takes for a seed; a rate that its float32 holds, after any division of the optimizer.
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Rate = Annotated[float, Field(gt=0, le=1e30)]
Bound = Annotated[float, Field(allow_inf_nan=True)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Table(pydantic.BaseModel):
    """A table of a recipe: every key is known, every value has its kind."""

    model_config = pydantic.ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Named(Table):
    """Something chosen by its name, with its numbers beside it; ``selection`` knows which these are."""

    model_config = pydantic.ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def numbers(self) -> dict[str, Any]:
        """All but the name."""
        return dict(self.model_extra or {})


class Policy(Table):
    """A Llama from scratch, by its sizes; or with ``load`` one that transformers finds, in a folder or by a name.

    With ``precision`` bf16 the model's products are taken in bfloat16, in sampling and in learning; weights, their
    optimizer, log-probs and the signal stay in float32.
    """

    load: str = ""
    precision: Literal["fp32", "bf16"] = "fp32"
    hidden: Count = 64
    layers: Count = 2
    heads: Count = 4
    inner: Count = 192
    positions: Count = 128


class Warm(Table):
    """Supervised learning on what the environment shows, before the reinforcement; kept in the cache."""

    steps: Count
    rows: Count = 128
    rate: Rate = 3e-3
    seed: Seed = 0


class Normalising(Table):
    """As ``signal.normalisation.Normalisation``."""

    mean: Over
    deviation: Over
    leave_one_out: bool = False
    biased: bool = False
    epsilon: NotNegative = 1e-6


class Sampling(Table):
    """How responses are sampled: ``prompts`` times ``responses`` trajectories a step.

    One that was cut at the most tokens trains as it is judged, is rejected as a whole, or trains with its reward
    void (``unended``). ``staleness`` is how many updates the policy that samples is behind. ``shuffled_rewards`` gives
    rewards to other trajectories than earned them: a control.
    """

    engine: str = "process"
    url: str = ""
    staleness: Annotated[int, Field(ge=0)] = 0
    prompts: Count
    responses: Count
    tokens: Count
    temperature: Annotated[float, Field(ge=1e-2, le=1e2)] = 1.0
    turns: Count = 1
    merged: bool = True
    unended: Literal["train", "reject", "suppress"] = "train"
    shuffled_rewards: bool = False


class Reward(Table):
    """What is done to outcomes before they are compared: shifted, scaled, clipped; and normalised, where asked."""

    bias: float = 0.0
    scale: float = 1.0
    least: Bound = -math.inf
    most: Bound = math.inf
    normalisation: Normalising | None = None


class Loss(Named):
    """A loss by its module's name, how its tokens become one number, and which of them it treats apart.

    ``chosen`` is a function of ``signal.covariance`` with its numbers, for a loss that wants one.
    """

    aggregation: Mode
    length: Count | None = None
    chosen: Named | None = None


class Divergence(Table):
    """A KL to the policy at the start, by an estimator of ``signal.kl``: told, priced, or part of the loss."""

    estimator: str = "k3"
    reward: NotNegative = 0.0
    loss: NotNegative = 0.0
    target: Positive | None = None
    horizon: Positive | None = None


class Correction(Table):
    """What is done about the distance between the policy that sampled and the one that learns."""

    reject: tuple[Named, ...] = ()
    weight: str = ""
    bounds: tuple[Named, ...] = ()


class Update(Table):
    """Mini-batches in prompts, one optimizer step each; ``rows`` at a time, whatever the cut."""

    prompts: Count
    epochs: Count = 1
    rows: Count = 1024
    rate: Rate
    betas: tuple[Share, Share] = (0.9, 0.999)
    decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    clip: Positive = 1.0
    ramp: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"


class Critic(Table):
    """A critic for a temporal estimator; ``clip`` is how far a value may go from what it was, in reward units."""

    rate: Rate
    betas: tuple[Share, Share] = (0.9, 0.999)
    clip: Positive = 0.2


class Checkpoints(Table):
    """A checkpoint every so many steps, and how many are kept."""

    every: Count = 10
    keep: Annotated[int, Field(ge=2)] = 2


class Recipe(Table):
    """A whole recipe.

    ``path`` names a function in the place of ``signal.path.loss_ready``, as ``pkg.module:function`` or
    ``file.py:function``: one of your own, or a fault to look at.
    """

    out: str
    seed: Seed = 0
    steps: Count
    threads: Annotated[int, Field(ge=0)] = 1
    policy: Policy = Policy()
    warm: Warm | None = None
    environment: Named
    rollout: Sampling
    reward: Reward = Reward()
    path: str = ""
    estimator: Named
    loss: Loss
    kl: Divergence | None = None
    correction: Correction = Correction()
    update: Update
    critic: Critic | None = None
    checkpoint: Checkpoints = Checkpoints()


def read(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with ``key=value`` overrides, as ``seed=1`` and ``update.rate=1e-3``.

    Raises:
        SentinelError: one line that names the file and the key, and the nearest key where one is unknown.
    """
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SentinelError(f"recipe {path} cannot be read ({error.strerror}): name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SentinelError(f"recipe {path} is malformed ({error}), expected TOML") from error
    for override in overrides:
        _override(told, override)
    return made(told, where=f"recipe {path}")


def made(told: Mapping[str, Any], *, where: str) -> Recipe:
    """The recipe of plain tables.

    Raises:
        SentinelError: one line on the first key that is unknown, missing, or of the wrong kind or range.
    """
    try:
        return Recipe.model_validate(_tuples(told))
    except pydantic.ValidationError as error:
        unknown = [e for e in error.errors() if e["type"] == "extra_forbidden"]
        first = (unknown or error.errors())[0]
        place = [str(p) for p in first["loc"]]
        key = ".".join(place)
        if unknown:
            raise SentinelError(f"{where}[{key}] is unknown{nearest(place[-1], _keys(place[:-1]))}") from error
        got = "missing" if first["type"] == "missing" else repr(first["input"])
        if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
            words = f"a table, as {place[-1]} = {{ {' = ..., '.join(_keys(place)[:2])} = ... }}"
            raise SentinelError(f"{where}[{key}] is {got}, expected {words}") from error
        if first["type"] == "tuple_type":
            raise SentinelError(f"{where}[{key}] is {got}, expected a list, as {place[-1]} = [...]") from error
        raise SentinelError(f"{where}[{key}] is {got}: {first['msg'].lower()}") from error


def nearest(word: str, known: Sequence[str]) -> str:
    """The way out of an unknown word: the nearest known one, or all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]}" if close else f", expected one of {', '.join(known)}"


def _override(told: dict[str, Any], text: str) -> None:
    if len(text.splitlines()) > 1:
        raise SentinelError(f"override {text!r} holds a line break, expected one key=value: give each as its own")
    key, found, value = text.partition("=")
    if not found or not all(key.split(".")):
        raise SentinelError(f"override {text!r} is none, expected key=value, as in seed=1 or update.rate=1e-3")
    table = told
    for part in key.split(".")[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise SentinelError(f"override {text!r} goes below {part}, which is no table of the recipe")
    try:
        table[key.split(".")[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[key.split(".")[-1]] = value


def _tuples(told: Any) -> Any:  # noqa: ANN401 - what TOML holds
    """Lists as tuples: a recipe does not change."""
    if isinstance(told, Mapping):
        return {key: _tuples(value) for key, value in told.items()}
    return tuple(_tuples(x) for x in told) if isinstance(told, list) else told


def _keys(place: Sequence[str]) -> list[str]:
    """Keys of the table at a place."""
    table: type[pydantic.BaseModel] = Recipe
    for part in place:
        field = table.model_fields.get(part)
        kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
        table = next((k for k in kinds if isinstance(k, type) and issubclass(k, pydantic.BaseModel)), table)
    return list(table.model_fields)
