"""Rejections of one's own, beside packed tokens: they must say whether they decide on rows or on tokens."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Bool
from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.reference.arguments import SIGNAL
from rl_sentinel.frameworks.reference.refusals import by_name, of_words
from rl_sentinel.frameworks.target import Target

READY = f"{SIGNAL}.path.loss_ready"


def _of_tokens(_old: Tensor, _rollout: Tensor, *, mask: Any) -> Bool[Tensor, "*S"]:  # noqa: ANN401 - the copy's own
    return cast("Tensor", mask.mask)


def _of_rows(_old: Tensor, _rollout: Tensor, *, mask: Any) -> Bool[Tensor, " B"]:  # noqa: ANN401 - as above
    return cast("Tensor", mask.length > 0)


def _of_something(_old: Tensor, _rollout: Tensor, *, mask: Any) -> Tensor:  # noqa: ANN401 - as above
    return cast("Tensor", mask.mask)


def _of_groups(_old: Tensor, _rollout: Tensor, *, mask: Any) -> Bool[Tensor, " G"]:  # noqa: ANN401 - as above
    return cast("Tensor", mask.mask)


#: Way of deciding on two rows of one packed token each, so that no shape can tell -> the decision.
_DECIDED: Mapping[str, Callable[..., Tensor]] = {
    "sound": _of_tokens,
    "sound, of rows": _of_rows,
    "of what it does not say": _of_something,
    "of groups": _of_groups,
}


def boundaries(target: Target) -> Iterator[Boundary]:
    """One, and a setting for each way of deciding."""
    sound = [name for name in _DECIDED if name.startswith("sound")]
    yield from of_words(f"{READY} of packed decisions", partial(_decided, target), _DECIDED, sound=sound)


def _decided(target: Target, setting: str) -> object:
    mask = target.call(f"{SIGNAL}.segments.Segments", torch.ones(2).bool(), torch.tensor([1, 1]))
    known = {"reward": torch.ones(2), "group": torch.zeros(2).long(), "mask": mask}
    known |= dict.fromkeys(("old_logprob", "rollout_logprob"), torch.zeros(2))
    estimator = target.find(f"{SIGNAL}.advantage.rloo.advantages")
    by = target.call(f"{SIGNAL}.path.Choices", estimator=estimator, rejections=(_DECIDED[setting],))
    asked = partial(target.call, READY, target.call(f"{SIGNAL}.rollout.Rollout", **known), by=by)
    return asked() if setting.startswith("sound") else by_name(asked, "annotation")
