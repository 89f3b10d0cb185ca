"""The end of a stand-alone script: print what was expected and what came out, and whether the expectation holds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rl_sentinel.audit.worker.literal import literal
from rl_sentinel.core.expectations import Expectation, Pair


@dataclass(frozen=True, slots=True)
class Places:
    """Expressions of a script: of an observed tensor, and of the one that it is compared with (empty: a literal)."""

    expected: str
    observed: str


@dataclass(frozen=True, slots=True)
class Ending:
    """The last lines of a script about one broken expectation of a law."""

    code: str
    expectation: Expectation

    def lines(self, places: Sequence[Places]) -> list[str]:
        r"""The lines; ``places`` has one entry per compared pair of the expectation.

        Where the script has no expression of an observed tensor, the sentence is printed in the place of a comparison.

        Example:
            >>> from torch import tensor
            >>> from rl_sentinel.audit.worker.ending import Ending, Places
            >>> from rl_sentinel.core.expectations import Equal
            >>> equal = Equal("advantage", tensor([0.5]), tensor([1.0]), reason="the mean is 0.5")
            >>> print(*Ending("REF001", equal).lines([Places("", "answer[0]")]), sep="\n")
            <BLANKLINE>
            # REF001: advantage is 1 at row 0, expected 0.5: the mean is 0.5
            expected, observed = torch.tensor([0.5]), answer[0]
            print("expected:", expected.tolist())
            print("observed:", observed.tolist())
            holds = bool((((observed).double() - (expected).double()).abs() <= 3.82e-06).all())
            print("REF001: advantage", "is as expected" if holds else "differs")
        """
        pairs = self.expectation.pairs()
        if not pairs or len(places) != len(pairs) or not all(place.observed for place in places):
            return ["", f"print({json.dumps(f'{self.code}: {self.expectation.sentence()}')})"]
        named = [*zip(pairs, places, self._names(pairs), strict=True)]
        holds = " or ".join(self.expectation.assertion(observed, expected) for _, _, (expected, observed) in named)
        return [
            "",
            f"# {self.code}: {self.expectation.sentence()}",
            *(line for one in named for line in self._shown(*one)),
            f"holds = {holds}",
            f'print("{self.code}: {self.expectation.output}", "is as expected" if holds else "differs")',
        ]

    @staticmethod
    def _names(pairs: Sequence[Pair]) -> list[tuple[str, str]]:
        marks = [""] if len(pairs) == 1 else [f"_{number}" for number in range(len(pairs))]
        return [(f"expected{mark}", f"observed{mark}") for mark in marks]

    @staticmethod
    def _shown(pair: Pair, place: Places, names: tuple[str, str]) -> list[str]:
        expected, observed = names
        if pair.expected is None:
            return [f"{observed} = {place.observed}", f'print("{observed}:", {observed}.tolist())']
        known = place.expected or f"torch.tensor({literal(pair.expected.detach().tolist())})"
        return [
            f"{expected}, {observed} = {known}, {place.observed}",
            f'print("{expected}:", {expected}.tolist())',
            f'print("{observed}:", {observed}.tolist())',
        ]
