"""Boundary of verl's response mask, which ends at the first end-of-sequence token."""

import inspect
from collections.abc import Iterator

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: Paths of the function, newest release first.
PATHS = ("verl.utils.torch_functional.get_response_mask", "verl.utils.torch_functional.get_eos_mask")

_CLAIMS = claims(
    "torch_functional.py, docstring: the mask is 1 up to the first end token, and at it",
    output_algorithms={"mask": "1 up to the first end token"},
)
_PRODUCED = (
    "workers/rollout/hf_rollout.py, generate_sequences: sampled tokens and the end tokens of the generation config"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the function with one end token; with two end tokens if it accepts a list."""
    path = next((p for p in PATHS if target.has(p)), "")
    if path:
        yield from try_bind(target, path, "batch", lambda: [_mask(target, path)])


def end_tokens(inputs: Inputs) -> int | list[int]:
    """One end token, or a list of two."""
    first, second = inputs.settings["end"], inputs.settings.get("other_end")
    return int(first or 0) if second is None else [int(first or 0), int(second)]


def _mask(target: Target, path: str) -> Boundary:
    settings: dict[str, Settings] = {"one end token": {"end": 2}}
    if "list" in inspect.getsource(target.find(path)).lower():
        settings["two end tokens"] = {"end": 1, "other_end": 2}
    ends = next(name for name in inspect.signature(target.find(path)).parameters if name.startswith("eos"))
    return one_call(
        path=path,
        stage="batch",
        call=path,
        name="mask",
        arguments={"response_id": Column("token"), ends: Derived(end_tokens)},
        produced_by={"response_id": _PRODUCED},
        reads=frozenset({"token", "mask"}),
        outputs={"mask": Output("B T", "", "", at=Use("mask"), form=Padded())},
        settings=settings,
        claims=_CLAIMS,
        reach="rollout.name=hf; a model with several end tokens",
    )
