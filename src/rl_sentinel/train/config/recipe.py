"""The recipe of a run: a strict TOML file, with ``key=value`` overrides from the command line."""

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
#: The range of torch's seeds; a learning rate that stays finite in float32 after the optimizer's divisions.
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Rate = Annotated[float, Field(gt=0, le=1e30)]
Bound = Annotated[float, Field(allow_inf_nan=True)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Table(pydantic.BaseModel):
    """A table of a recipe. Unknown keys and values of another type are errors."""

    model_config = pydantic.ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Component(Table):
    """A component chosen by name, such as an estimator, with its parameters as further keys."""

    model_config = pydantic.ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """All keys except the name."""
        return dict(self.model_extra or {})


class PolicySettings(Table):
    """A Llama from scratch, by its sizes; or ``load``, a transformers model by folder or name.

    ``precision="bf16"`` runs the model under bfloat16 autocast, for sampling and training. Weights, optimizer,
    log-probs and the signal stay in float32.
    """

    load: str = ""
    precision: Literal["fp32", "bf16"] = "fp32"
    hidden: Count = 64
    layers: Count = 2
    heads: Count = 4
    inner: Count = 192
    positions: Count = 128


class WarmStartSettings(Table):
    """Supervised learning on the environment's demonstrations before RL; the weights are cached."""

    steps: Count
    rows: Count = 128
    rate: Rate = 3e-3
    seed: Seed = 0


class NormalisationSettings(Table):
    """The fields of ``signal.normalisation.Normalisation``."""

    mean: Over
    deviation: Over
    leave_one_out: bool = False
    biased: bool = False
    epsilon: NotNegative = 1e-6


class RolloutSettings(Table):
    """Sampling: ``prompts`` times ``responses`` trajectories per step, of at most ``tokens`` tokens per turn.

    ``unended`` decides about trajectories that were cut at the token limit: train on their reward, reject them, or
    train on them with their reward suppressed. ``staleness`` is how many updates the sampling policy lags behind.
    ``shuffled_rewards`` permutes rewards over trajectories, as a control experiment.
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


class RewardSettings(Table):
    """Reward shaping before the estimator: shift, scale, clip, and optionally normalise."""

    bias: float = 0.0
    scale: float = 1.0
    least: Bound = -math.inf
    most: Bound = math.inf
    normalisation: NormalisationSettings | None = None


class LossSettings(Component):
    """A loss by its module's name, and its aggregation over tokens.

    ``chosen`` is a function of ``signal.covariance``, for a loss that treats some tokens differently.
    """

    aggregation: Mode
    length: Count | None = None
    chosen: Component | None = None


class KLSettings(Table):
    """A KL to the initial policy, by an estimator of ``signal.kl``: logged, in the reward, or in the loss."""

    estimator: str = "k3"
    reward: NotNegative = 0.0
    loss: NotNegative = 0.0
    target: Positive | None = None
    horizon: Positive | None = None


class CorrectionSettings(Table):
    """Corrections for the difference between the sampling policy and the policy before the update."""

    reject: tuple[Component, ...] = ()
    weight: str = ""
    bounds: tuple[Component, ...] = ()


class UpdateSettings(Table):
    """The update: mini-batches of ``prompts`` prompts, one optimizer step each, computed ``rows`` rows at a time."""

    prompts: Count
    epochs: Count = 1
    rows: Count = 1024
    rate: Rate
    betas: tuple[Share, Share] = (0.9, 0.999)
    decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    clip: Positive = 1.0
    ramp: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"


class CriticSettings(Table):
    """The critic of a temporal estimator; ``clip`` bounds the change of a value per update, in reward units."""

    rate: Rate
    betas: tuple[Share, Share] = (0.9, 0.999)
    clip: Positive = 0.2


class CheckpointSettings(Table):
    """A checkpoint after every ``every`` steps; the newest ``keep`` are kept."""

    every: Count = 10
    keep: Annotated[int, Field(ge=2)] = 2


class Recipe(Table):
    """A whole recipe.

    ``path`` replaces ``signal.path.loss_ready`` by a function of your own, as ``pkg.module:function`` or
    ``file.py:function``.
    """

    out: str
    seed: Seed = 0
    steps: Count
    threads: Annotated[int, Field(ge=0)] = 1
    policy: PolicySettings = PolicySettings()
    warm: WarmStartSettings | None = None
    environment: Component
    rollout: RolloutSettings
    reward: RewardSettings = RewardSettings()
    path: str = ""
    estimator: Component
    loss: LossSettings
    kl: KLSettings | None = None
    correction: CorrectionSettings = CorrectionSettings()
    update: UpdateSettings
    critic: CriticSettings | None = None
    checkpoint: CheckpointSettings = CheckpointSettings()


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe from a TOML file and apply overrides such as ``seed=1`` and ``update.rate=1e-3``.

    Raises:
        SentinelError: one line that names the file and the key, with a suggestion for an unknown key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SentinelError(f"recipe {path} cannot be read ({error.strerror}): name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SentinelError(f"recipe {path} is malformed ({error}), expected TOML") from error
    for override in overrides:
        _apply_override(tables, override)
    return parse_recipe(tables, where=f"recipe {path}")


def parse_recipe(tables: Mapping[str, Any], *, where: str) -> Recipe:
    """Validate plain tables.

    Args:
        tables: as TOML or JSON holds them; a table that is None is left out.
        where: the start of each error message.

    Raises:
        SentinelError: one line on the first key that is unknown, missing, or of the wrong type or range.
    """
    try:
        return Recipe.model_validate(_as_plain_tables(tables))
    except pydantic.ValidationError as error:
        unknown = [e for e in error.errors() if e["type"] == "extra_forbidden"]
        first = (unknown or error.errors())[0]
        place = [str(p) for p in first["loc"]]
        key = ".".join(place)
        if unknown:
            raise SentinelError(f"{where}[{key}] is unknown{suggestion(place[-1], _keys_at(place[:-1]))}") from error
        got = "missing" if first["type"] == "missing" else repr(first["input"])
        if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
            example = f"{place[-1]} = {{ {' = ..., '.join(_keys_at(place)[:2])} = ... }}"
            raise SentinelError(f"{where}[{key}] is {got}, expected a table, as {example}") from error
        if first["type"] == "tuple_type":
            raise SentinelError(f"{where}[{key}] is {got}, expected a list, as {place[-1]} = [...]") from error
        raise SentinelError(f"{where}[{key}] is {got}: {first['msg'].lower()}") from error


def suggestion(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the nearest known word, or all known words."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]}" if close else f", expected one of {', '.join(known)}"


def _apply_override(tables: dict[str, Any], text: str) -> None:
    if len(text.splitlines()) > 1:
        raise SentinelError(f"override {text!r} has a line break, expected key=value: pass each override on its own")
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise SentinelError(f"override is {text!r}, expected key=value, as seed=1 or update.rate=1e-3")
    table = tables
    for part in key.split(".")[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise SentinelError(f"override {text!r} sets a key of {part}, expected a table: {part} has a plain value")
    try:
        table[key.split(".")[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[key.split(".")[-1]] = value


def _as_plain_tables(value: Any) -> Any:  # noqa: ANN401 - a value of TOML or JSON
    """Lists as tuples, since a recipe is frozen; drop None, which a JSON dump has for absent tables."""
    if isinstance(value, Mapping):
        return {key: _as_plain_tables(item) for key, item in value.items() if item is not None}
    return tuple(_as_plain_tables(x) for x in value) if isinstance(value, list) else value


def _keys_at(place: Sequence[str]) -> list[str]:
    """The keys of the table at a place."""
    table: type[pydantic.BaseModel] = Recipe
    for part in place:
        field = table.model_fields.get(part)
        kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
        table = next((k for k in kinds if isinstance(k, type) and issubclass(k, pydantic.BaseModel)), table)
    return list(table.model_fields)
