"""Bad input to any public function: one line that names it, what it is, and what was expected."""

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import pytest
import torch
from sound_arguments import FREE, PARTS, PUBLIC, arguments
from torch import Tensor

from rl_sentinel.core.errors import InputError


def _is_whole(dtype: torch.dtype) -> bool:
    """Whether numbers of that type are whole, and can be made: torch has types by name alone."""
    return re.fullmatch(r"torch\.u?int(8|16|32|64)", str(dtype)) is not None


def _refused(name: str, changed: dict[str, Any]) -> str:
    with pytest.raises(InputError) as refused:
        PUBLIC[name](**{**arguments(name), **changed})
    return str(refused.value)


@pytest.mark.parametrize("name", PUBLIC)
def test_sound_input_is_taken(name: str) -> None:
    PUBLIC[name](**arguments(name))


@pytest.mark.parametrize("name", PUBLIC)
def test_bad_input_is_refused_in_one_line(name: str) -> None:
    tensors = {n: v for n, v in arguments(name).items() if isinstance(v, Tensor)}
    told = []
    for one, sound in tensors.items():
        other = sound.float() if not sound.is_floating_point() else sound > 0
        told += [(one, _refused(name, {one: changed})) for changed in (other, sound.unsqueeze(-1))]
        assert re.search(rf"^{one} has dtype {str(other.dtype)[6:]}, expected ", told[-2][1]), told[-2]
        assert re.search(r" (has|have) shape \[", told[-1][1]), told[-1]
        if len(tensors) > 1 and f"{name} {one}" not in FREE:
            told.append((one, _refused(name, {one: torch.cat([sound, sound[:1]])})))
        if sound.is_floating_point() and name not in PARTS:
            wrong = sound.clone()
            wrong.view(-1)[0] = torch.nan
            told.append((one, _refused(name, {one: wrong})))
        if "length" in one or one == "tokens":
            told.append((one, _refused(name, {one: sound - 9})))
    for one, message in told:
        assert "\n" not in message, (one, message)
        assert ", expected " in message, (one, message)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_no_tensor_or_no_number_is_refused_in_one_line(name: str) -> None:
    told = []
    for one, value in arguments(name).items():
        kind = inspect.signature(PUBLIC[name]).parameters[one].annotation
        strange: tuple[Any, ...] = (None, value.tolist(), value.numpy()) if isinstance(value, Tensor) else ()
        if isinstance(value, Tensor) and one == "weight" and type(None) in get_args(kind):
            strange = strange[1:]
        if kind in (float, int):
            strange = ("0.5", None, torch.nan, *[0.5] * (kind is int))
        told += [(one, _refused(name, {one: wrong})) for wrong in strange]
    for one, message in told:
        assert "\n" not in message, (one, message)
        assert ", expected " in message, (one, message)


WHOLE_NUMBERS = {d for d in vars(torch).values() if isinstance(d, torch.dtype) and _is_whole(d)}
LABELED = [n for n in PUBLIC if any(isinstance(v, Tensor) and _is_whole(v.dtype) for v in arguments(n).values())]


@pytest.mark.parametrize("dtype", sorted(WHOLE_NUMBERS, key=str), ids=str)
@pytest.mark.parametrize("name", LABELED)
def test_whole_numbers_of_every_width_are_taken(name: str, dtype: torch.dtype) -> None:
    sound = arguments(name)
    whole = {n: v.to(dtype) for n, v in sound.items() if isinstance(v, Tensor) and _is_whole(v.dtype)}
    expected, found = (_numbers(PUBLIC[name](**{**sound, **more})) for more in ({}, whole))
    torch.testing.assert_close(found, expected, equal_nan=True)


def _numbers(answer: Any) -> Any:
    if not is_dataclass(answer):
        return answer
    return [getattr(answer, f.name) for f in fields(answer) if not isinstance(getattr(answer, f.name), str | None)]
