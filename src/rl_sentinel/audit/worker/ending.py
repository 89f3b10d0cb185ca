"""How a stand-alone script ends: what was expected, what it got, and whether these differ."""

import json
from dataclasses import dataclass

from torch import Tensor, broadcast_to

from rl_sentinel.audit.worker.literal import literal


@dataclass(frozen=True, slots=True)
class Ending:
    """The relation that broke.

    The law's code, the output, the two tensors, where they count, what is rounding, and what the law says of it.
    """

    code: str
    output: str
    expected: Tensor
    observed: Tensor
    where: Tensor | None
    allowed: float
    story: str = ""

    def lines(self, expected_at: str, got_at: str) -> list[str]:
        r"""The last lines; the places are expressions of the script, or empty where a law made the number of several.

        Example:
            >>> from torch import tensor
            >>> from rl_sentinel.audit.worker.ending import Ending
            >>> one, two = tensor([0.5]), tensor([1.0])
            >>> print(*Ending("REF001", "advantage", one, two, None, 1e-6).lines("", "answer[0]")[2:], sep="\n")
            expected, got = torch.tensor([0.5]), answer[0]
            apart = ~((got.double() - expected.double()).abs() <= 1e-06)
            print("expected:", expected.tolist())
            print("got:     ", got.tolist())
            print("REF001: advantage", "differs" if bool(apart.any()) else "is as expected")
        """
        if not got_at:
            pair = f"expected {literal(self.expected.tolist())}, got {literal(self.observed.tolist())}"
            told = json.dumps(
                f"{self.code}: of these, when it was found, {self.output} {pair}; {self.story}".rstrip("; ")
            )
            return ["", f"print({told})"]
        known = expected_at or f"torch.tensor({literal(self.expected.detach().tolist())})"
        apart = f"apart = ~((got.double() - expected.double()).abs() <= {self.allowed:.3g})"
        whole = self.where is None or bool(self.where.all())
        counted = "" if self.where is None or whole else self._counted(self.where)
        return [
            "",
            f"# {self.code}: what is expected of {self.output}, and what it is",
            f"expected, got = {known}, {got_at}",
            apart + counted,
            'print("expected:", expected.tolist())',
            'print("got:     ", got.tolist())',
            f'print("{self.code}: {self.output}", "differs" if bool(apart.any()) else "is as expected")',
        ]

    def _counted(self, where: Tensor) -> str:
        return f" & torch.tensor({literal(broadcast_to(where, self.observed.shape).tolist())})"
