"""Refuse layouts that no binding supports, such as a single trajectory."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import KNOWN, LISTS
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.user_layouts import FunctionCodec
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.formulas.temporal import TEMPORAL

#: Columns of the critic: a baseline may hold one of these per response.
_VALUES = frozenset({"value", "old_value", "returns"})

#: Columns whose value at the first trained token of a response says nothing about the other tokens.
_PER_TOKEN = _VALUES | {"logprob", "old_logprob", "ref_logprob", "rollout_logprob"}

#: Columns for which one of two arguments with the same column may be meant.
_ALIKE = (("value", "old_value", "returns"), ("logprob", "old_logprob", "rollout_logprob", "ref_logprob"))

#: Stages whose functions may take the tokens of a mini-batch end to end.
_OF_TOKENS = ("policy-loss", "value-loss", "kl")

#: How to check a function of one trajectory.
_ONE_BY_ONE = (
    "check a function that calls yours once per response, as in "
    "def mine(rewards: list[list[float]], values: list[list[float]]): "
    "return [f(r, v) for r, v in zip(rewards, values)]"
)


def supported(axes: str, path: str, column: str, *, source: str) -> str:
    """The axes, if a binding supports them.

    Args:
        axes: as :func:`~rl_sentinel.adapters.kit.annotated_axes.axes_of` returns them.
        path: the parameter.
        column: the column that it is bound to.
        source: where the axes are stated: ``"annotation"`` or ``"docstring"``.

    Raises:
        Unbindable: if no binding supports them.

    Example:
        >>> from rl_sentinel.adapters.kit.refused_layouts import supported
        >>> supported("BT", "values", "value", source="docstring")
        'BT'
    """
    if not axes or axes in (*KNOWN, *LISTS):
        return axes
    shape = f"{path} has the axes [{', '.join(axes)}] in its {source}"
    container, _, name = path.rpartition(".")
    if axes == "KG":
        fix = f"builds {container} and calls yours" if container else f"calls yours, as in lambda {name}: f({name}.T).T"
        raise Unbindable(
            f"{shape}, expected [G, K]: pass a function that takes {name} as [G, K], transposes it"
            f'{"," if container else " and"} {fix}, with bind={{"{name}": "{column}[GK]"}}'
        )
    wide = "token_rewards" if column == "reward" else column
    if "B" not in axes and "T" in axes:
        raise Unbindable(
            f"{shape}, of one trajectory, expected [B, T], or for all tokens end to end "
            f'bind={{"{path}": "{wide}[N]"}}: {_ONE_BY_ONE}'
        )
    expected = ", ".join(f"[{', '.join(known)}]" for known in KNOWN)
    example = f", as in lambda {name}: f({name}.unsqueeze(-1)).squeeze(-1)" if axes == "BT1" else ""
    fix = f", builds {container} and calls yours" if container else f" and calls yours{example}"
    raise Unbindable(
        f"{shape}, expected one of {expected}: write a function of {name} [B, T] that changes it to "
        f'[{", ".join(axes)}]{fix}; check that function with bind={{"{name}": "{wide}[B T]"}}'
    )


def flat_columns(codecs: Mapping[str, Codec], stage: Stage) -> dict[str, str]:
    """Bindings as ``[N]`` for the columns of a loss that are all stated as ``[B]``: a flat mini-batch of tokens.

    Empty if a column has another layout, if no column has tokens, or if another argument separates the responses.

    Example:
        >>> from rl_sentinel.adapters.kit.bind_text import codec_of
        >>> from rl_sentinel.adapters.kit.refused_layouts import flat_columns
        >>> flat_columns({"newlogp": codec_of("logprob[B]"), "adv": codec_of("advantage[B]")}, "policy-loss")
        {'newlogp': 'logprob[N]', 'adv': 'advantage[N]'}
    """
    carried = {path: codec for path, codec in codec_paths(codecs) if codec.columns or codec.shapes}
    flat = {path: codec for path, codec in carried.items() if isinstance(codec, PerResponse)}
    of_tokens = any(codec.name in _PER_TOKEN for codec in flat.values())
    if stage not in _OF_TOKENS or not of_tokens or len(flat) != len(carried):
        return {}
    if any(codec.dims or codec.grouped or codec.listed for codec in flat.values()):
        return {}
    return {path: f"{codec.name}[N]" for path, codec in flat.items()}


#: Columns of task rewards.
_REWARDS = frozenset({"reward", "token_reward", "reward_parts"})


def refuse_one_per_response(codecs: Mapping[str, Codec], stage: Stage, claims: Claims) -> None:
    """Raise an error if a column of tokens is passed as one number per response.

    A baseline from the critic may be one number per response, unless credit runs over time.

    Raises:
        Unbindable: names the first such parameter; or a list of rewards, if credit runs over time and nothing shows to
            which response a token belongs.
    """
    temporal = value_of(claims.algorithm) in TEMPORAL or value_of(claims.credit) == "temporal"
    parts = dict(codec_paths(codecs))
    for path, codec in parts.items():
        if not isinstance(codec, PerResponse) or codec.name not in _PER_TOKEN:
            continue
        if stage == "advantage" and codec.listed:
            tensor = ", or a tensor [B]" if codec.name in _VALUES and not temporal else ""
            raise Unbindable(
                f"{path} is one list of numbers, expected one list per response{tensor}: "
                f"if your function takes a single trajectory, {_ONE_BY_ONE}"
            )
        if stage == "advantage" and codec.name in _VALUES and not temporal:
            continue
        raise Unbindable(
            f"{path} is bound to {codec.name} as one number per response, expected one per token: state its layout, "
            "[B, T] or, for a flat batch of tokens, [N], and the layout of every other column of tokens, as in "
            f'bind={{"{path}": "{codec.name}[N]"}}'
        )
    plain = [path for path, codec in parts.items() if _is_list_of_rewards(codec)]
    if temporal and plain and not any(codec.columns - {"reward", "group"} or codec.shapes for codec in parts.values()):
        raise Unbindable(
            f"{plain[0]} is one list of numbers, and nothing says which response a number belongs to, expected one "
            "list per response: check a function that calls yours once per response, as in "
            "def mine(rewards: list[list[float]]): return [f(r) for r in rewards]"
        )


def refuse_shared_columns(codecs: Mapping[str, Codec], bind: Mapping[str, Any]) -> None:
    """Raise an error if two arguments get the same token column only because of their names: one name is wrong.

    Raises:
        Unbindable: names the arguments.

    Example:
        >>> from rl_sentinel.adapters.kit.bind_text import codec_of
        >>> from rl_sentinel.adapters.kit.refused_layouts import refuse_shared_columns
        >>> refuse_shared_columns({"logps": codec_of("logprob"), "logps_old": codec_of("old_logprob")}, {})
    """
    found: dict[str, list[str]] = {}
    for path, codec in codec_paths(codecs):
        if len(codec.columns) == 1 and codec.columns <= _PER_TOKEN and not isinstance(codec, FunctionCodec):
            found.setdefault(next(iter(codec.columns)), []).append(path)
    for column, paths in found.items():
        unstated = [path for path in paths if path not in bind and path.partition(".")[0] not in bind]
        if len(paths) > 1 and unstated:
            free = [name for alike in _ALIKE if column in alike for name in alike if name not in found]
            example = f', as in bind={{"{unstated[-1]}": "{free[0]}"}}' if free else ""
            raise Unbindable(
                f"{' and '.join(paths)} get the same column, {column}: state which column {unstated[-1]} is{example}"
            )


def refuse_without_reward(codecs: Mapping[str, Codec], stage: Stage, claims: Claims) -> None:
    """Raise an error if a function claims an algorithm of advantages and reads no reward.

    Raises:
        Unbindable: proposes the argument that may be a reward.
    """
    parts = dict(codec_paths(codecs))
    if stage != "advantage" or claims.algorithm is None or any(codec.columns & _REWARDS for codec in parts.values()):
        return
    named = [path for path, codec in parts.items() if codec.columns == {"returns"}]
    named = named or [path for path, codec in parts.items() if not codec.columns & {"mask", "group"}]
    proposal = "add a parameter of rewards"
    if named:
        proposal = f'if {named[0]} is the reward, state bind={{"{named[0]}": "reward"}}'
    raise Unbindable(
        f"the function reads no reward, expected a reward, from which {claims.algorithm.value} is computed: {proposal}"
    )


def _is_list_of_rewards(codec: Codec) -> bool:
    """Whether an argument is a list with one reward per response."""
    form = getattr(codec, "form", None)
    return codec.columns == {"reward"} and isinstance(form, PerRow) and form.kind == "list"


def codec_paths(codecs: Mapping[str, Codec], prefix: str = "") -> Iterator[tuple[str, Codec]]:
    """Path and codec of each argument, including arguments inside containers."""
    for name, codec in codecs.items():
        path = f"{prefix}{name}"
        if isinstance(codec, Container):
            yield from codec_paths(codec.parts, f"{path}.")
        else:
            yield path, codec
