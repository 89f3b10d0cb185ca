"""Find the settings of a case that the arguments of a boundary use; its formula may depend on other settings."""

from collections.abc import Iterator, Mapping

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Scalar
from rl_sentinel.core.codec import Inputs


class _Recorded(Mapping[str, Scalar]):
    """Settings that record the names of the settings that were read."""

    def __init__(self, settings: Mapping[str, Scalar]) -> None:
        self._settings = settings
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Scalar:
        self.names.add(name)
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


def settings_read(boundary: Boundary, case: Case) -> set[str]:
    """The names of the settings that the codecs of ``boundary`` read to build its arguments for ``case``.

    None are read where the trainer could not make the call, and no arguments can be built.
    """
    values = {**boundary.settings[case.setting], **case.override}
    settings = _Recorded(values)
    try:
        for codec in boundary.codecs():
            codec.put(Inputs(case.batch, settings, case.layout))
    except ValueError:
        if any(unmet(Inputs(case.batch, values, case.layout)) for unmet in boundary.requires):
            return set()
        raise
    return settings.names & settings.keys()
