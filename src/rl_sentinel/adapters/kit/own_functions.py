"""Steps that call a function of this package with the whole batch, for the library adapter and test specimens."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.containers import Whole
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.value_codecs import AllSettings
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.layout import Axis


class _Outputs(dict[str, Any]):
    """Outputs by name; one that was not returned is None, which the runner reports as not a tensor."""

    def __missing__(self, name: str) -> None:
        return None


def batch_step(
    compute: Callable[[Batch, Settings], Mapping[str, Tensor]],
    reads: frozenset[str],
    follows: frozenset[Axis] = frozenset(),
) -> Step:
    """A step that calls ``compute`` with the batch, of which it reads these columns, and with all settings.

    Fields of the layout that it ``follows`` besides padding and precision are passed among the settings.
    """

    def call(batch: Batch, settings: Settings) -> _Outputs:
        return _Outputs(compute(batch, settings))

    return Step(call=call, name="result", arguments={"batch": Whole(reads), "settings": AllSettings(follows)})


def by_name(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """The outputs, each in the table that ``compute`` returns."""
    return {n: replace(output, at=Use("result")[n], form=AsReturned()) for n, output in outputs.items()}
