"""``Choices``: the function of each stage of the signal path, and its numbers."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_sentinel.core.argument_checks import by_name, function, takes
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.requirements import ANY, NON_NEGATIVE, POSITIVE, require_instance, require_order
from rl_sentinel.signal.validation import validate_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The function of each stage, in order; by default a stage does nothing.

    Set the numbers of a function with ``partial``, as in ``partial(grpo.advantages, standardize=False, epsilon=0.0)``.

    Attributes:
        estimator: an estimator of ``signal.advantage``, or your own function with parameters of these names: an outcome
            estimator reads ``reward`` or ``reward_parts``, ``group``, ``live``, ``length``, ``reward_baseline``; a
            temporal estimator reads ``mask``, ``group`` and columns of tokens. Each part of the reward is processed
            like the reward; parts cannot be combined with rewards per token.
        rejections: functions with the signature of ``rejection.rows_kept`` or ``rejection.tokens_kept``; a token stays
            if all of them keep it. With packed columns, your own function must be annotated like these two.
        weight: importance weights, with the signature and annotation of a function of ``correction.weights``.
        bounds: functions with the signature of ``bounds.truncated``, applied to the weights in this order.
        bias, scale: as for ``reward.rescaled``: in reward units, and a ratio.
        least, most: as for ``reward.clipped``, in reward units.
        normalization: of the outcomes; None for no normalization.
        kl: an estimator of ``signal.kl``; it is logged and, times ``kl_coefficient``, subtracted from the reward.
        kl_coefficient: in reward units per nat; 0 leaves the reward unchanged.
    """

    estimator: Callable[..., Tensor]
    rejections: tuple[Callable[..., Tensor], ...] = ()
    weight: Callable[..., Tensor] | None = None
    bounds: tuple[Callable[..., Tensor], ...] = ()
    bias: float = 0.0
    scale: float = 1.0
    least: float = -torch.inf
    most: float = torch.inf
    normalization: Normalization | None = None
    kl: Callable[..., Tensor] | None = None
    kl_coefficient: float = 0.0

    def __post_init__(self) -> None:
        """Validate the combination of choices."""
        validate_record(self, kl_coefficient=NON_NEGATIVE, bias=ANY, scale=POSITIVE)
        require_order(least=self.least, most=self.most)
        for name, chosen in (("rejections", self.rejections), ("bounds", self.bounds)):
            if not isinstance(chosen, tuple):
                kind = type(chosen).__name__
                raise InputError(f"{name} is of type {kind}, expected a tuple of functions, such as (f,)")
        compared = [(f"rejections[{i}]", f) for i, f in enumerate(self.rejections)]
        compared += [(n, f) for n in ("weight", "kl") if (f := getattr(self, n)) is not None]
        for name, compare in compared:
            takes(name, compare, 2, "mask")
        for at, compare in enumerate(self.bounds):
            takes(f"bounds[{at}]", compare, 1, "mask")
        by_name("estimator", self.estimator)
        if self.normalization is not None:
            require_instance("normalization", self.normalization, Normalization, "center and scale")
        if self.kl_coefficient and self.kl is None:
            raise InputError(
                f"kl_coefficient is {self.kl_coefficient}, expected 0 where kl is None: set kl to an estimator"
            )
        if self.bounds and self.weight is None:
            raise InputError("bounds are given and weight is None, expected a weight function: bounds clip the weight")


def is_outcome(estimator: Callable[..., Tensor]) -> bool:
    """Whether an estimator takes one reward per response, and so supports trajectories of several steps.

    A temporal estimator has a ``mask`` parameter.

    Example:
        >>> from rl_sentinel.signal.advantage import gae, grpo
        >>> from rl_sentinel.signal.choices import is_outcome
        >>> is_outcome(grpo.advantages), is_outcome(gae.advantages)
        (True, False)
    """
    function("estimator", estimator)
    return "mask" not in inspect.signature(estimator).parameters
