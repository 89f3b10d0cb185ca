"""Write the expression that reads an output of a boundary from the results of its calls."""

import re

from rl_sentinel.adapters.kit.execution import cuts, inputs_of, sizes_of
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.audit.repro.call_source import Source, variable
from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use


def output_expression(output: Output, use: Use, run: Run) -> str:
    """The expression of an output; for a repeated step, its parts are joined as the boundary declares.

    Raises:
        Unwritable: if the output of a repeated step is an argument.
    """
    form = output.form or (PerRow() if output.axes == "B" else Number())
    if output.join is None:
        return form.source(variable(use), run.sizes)
    each = next((c.step.each for c in run.calls if c.step.result == use.name), None)
    if each is None:
        raise Unwritable("a script cannot read an argument of a step that runs once per part")
    shapes = [sizes_of(cut.batch) for cut in cuts(inputs_of(run.boundary, run.case), each)]
    parts = [form.source(str(Use(f"{use.name}_{n}", use.path)), sizes) for n, sizes in enumerate(shapes)]
    together = f"[{', '.join(parts)}]"
    count = {"mean": len(parts), "rank-mean": run.case.layout.ranks}.get(output.join, 1)
    if output.join in ("rows", "last"):
        return parts[-1] if output.join == "last" else f"torch.cat({together})"
    return f"torch.stack({together}).sum(0)" + (f" / {count}" if count > 1 else "")


def shared_expression(sources: list[str], text: Source, name: str) -> str:
    """One expression of an output for all runs; parts that depend on the batch's shape become parameters.

    Raises:
        Unwritable: if the expressions of the runs read no common variable.
    """
    if all(source == sources[0] for source in sources):
        return sources[0]
    reader = f"read_{''.join(c if c.isalnum() else '_' for c in name)}"
    text.parameters[reader] = [f"lambda value: {_with_value(source, sources)}" for source in sources]
    return f"{reader}({_common(sources)})"


def _common(sources: list[str]) -> str:
    """The longest reference (a variable with attributes and keys) that all expressions contain."""
    words: list[str] = re.findall(r"[A-Za-z_][\w.]*(?:\['[^']*'\]|\[\d+\])*", sources[0])
    shared = [word for word in words if all(word in source for source in sources) and not word.startswith("torch")]
    if not shared:
        raise Unwritable("the recorded calls return an output in forms that one expression cannot read")
    return max(shared, key=len)


def _with_value(source: str, sources: list[str]) -> str:
    return source.replace(_common(sources), "value")
