"""Steps that call a function of this package on the whole batch: for the signal library and test specimens."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.codecs import WholeBatch
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.value_codecs import AllSettings
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.layout import Axis


class _Outputs(dict[str, Any]):
    """Outputs by name; a missing output is None, which is reported as not a tensor."""

    def __missing__(self, name: str) -> None:
        return None


def batch_step(
    compute: Callable[[Batch, Settings], Mapping[str, Tensor]],
    reads: frozenset[str],
    follows: frozenset[Axis] = frozenset(),
) -> Step:
    """A step that calls ``compute(batch, settings)``, which reads these columns and returns outputs by name.

    ``follows`` names layout fields other than padding and dtype; the step passes these fields as settings.
    """

    def call(batch: Batch, settings: Settings) -> _Outputs:
        return _Outputs(compute(batch, settings))

    return Step(call=call, name="result", arguments={"batch": WholeBatch(reads), "settings": AllSettings(follows)})


def by_name(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """The outputs of a :func:`batch_step`, each read by its name from the returned dict."""
    return {n: replace(output, at=Use("result")[n], form=AsReturned()) for n, output in outputs.items()}
