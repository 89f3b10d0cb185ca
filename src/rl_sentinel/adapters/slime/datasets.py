"""slime's data set: samples from the rows of a file, without prompts that are too long."""

import inspect
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived
from rl_sentinel.adapters.slime.rollout_fakes import FIRST, Words
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings

DATASET = "slime.utils.data.Dataset"

#: Setting -> options: ``last`` reads the last rows only, ``most`` drops prompts with more tokens.
FAMILIES: Mapping[str, Settings] = {
    "default": {},
    "last rows": {"last": 2},
    "up to a length": {"most": 3},
}

_DOCS = "slime/utils/data.py, Dataset: a sample for each row of the file; --rollout-max-prompt-len is in tokens"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the samples of a file, under the options that the release supports."""
    if not target.has(DATASET) or target.fails(DATASET):
        return
    module = target.find(DATASET).__init__.__globals__
    sliced = "_parse_generalized_path" in module and "pd" not in module  # early releases read with pandas
    yield from bindable(
        target, _read({name: options for name, options in FAMILIES.items() if sliced or "last" not in options})
    )


def rows_of_samples(dataset: Callable[..., Any], prompts: list[int], options: Settings) -> dict[str, list[float]]:
    """Read a file; return how often each row becomes a sample, and how many of its columns come from another row.

    For a row that must not become a sample, 1 is added to the count, so that 1 is correct for every row. ``prompts``
    has the number of tokens of each prompt. The label and the metadata of a row contain the index of the row. A sample
    in a wrong place counts as one column.
    """
    rows = [_row(number, length) for number, length in enumerate(prompts)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prompts.jsonl")
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        samples = _samples(dataset, file, rows, options)
    last, most = int(options.get("last") or len(rows)), options.get("most")
    wanted = [n for n in range(len(rows)) if n >= len(rows) - last and (most is None or prompts[n] <= int(most))]
    labels = [int(sample.label) for sample in samples]
    uses = [labels.count(n) if n in wanted else 1 + labels.count(n) for n in range(len(rows))]
    others = [0.0] * len(rows)
    for place, sample in enumerate(samples):
        row = int(sample.label)
        other_place = place >= len(wanted) or wanted[place] != row
        columns = (_first(sample.prompt) - FIRST, int(sample.metadata["row"]))
        others[row] = float(other_place + sum(source != row for source in columns))
    return {"uses": [float(count) for count in uses], "others": others}


def _first(prompt: Any) -> int:  # noqa: ANN401 - a text, or messages
    """The first number in the text of a prompt."""
    text = prompt if isinstance(prompt, str) else prompt[0]["content"]
    return int(text.split()[0])


def _row(number: int, length: int) -> dict[str, Any]:
    text = Words().decode([FIRST + number, *[FIRST] * (length - 1)])
    return {"text": text, "label": str(number), "metadata": {"row": number}}


def _samples(dataset: Callable[..., Any], file: Path, rows: list[dict[str, Any]], options: Settings) -> list[Any]:
    init: Any = vars(dataset)["__init__"]
    known = inspect.signature(init).parameters
    module: dict[str, Any] = init.__globals__
    last = options.get("last")
    arguments = {
        "path": f"{file}@[{_start(len(rows), int(last))}:]" if last else str(file),
        "tokenizer": Words(),
        "processor": None,
        "max_length": options.get("most"),
        "prompt_key": "text",
        "label_key": "label",
        "metadata_key": "metadata",
        "apply_chat_template_kwargs": {},
    }
    reader = {"read_file": lambda _path: iter(rows)} if "pd" in module else {}
    with replaced_globals(module, **reader):
        loaded: Any = dataset(**{name: value for name, value in arguments.items() if name in known})
    return list(loaded.samples)


def _start(rows: int, last: int) -> int:
    """The start of a slice of the last rows; negative for an even number of rows, so that both notations are tested."""
    return max(0, rows - last) if rows % 2 else -last


def _read(settings: Mapping[str, Settings]) -> Boundary:
    step = Step(
        call=rows_of_samples,
        name="read",
        arguments={
            "dataset": Constant(Function(DATASET)),
            "prompts": Derived(lambda inputs: [1 + length for length in inputs.batch.length.tolist()]),
            "options": AllSettings(),
        },
        produced_by={"prompts": "slime/rollout/data_source.py, RolloutDataSource: Dataset of --prompt-data"},
    )
    form = PerRow("list")
    return Boundary(
        path=DATASET,
        stage="batch",
        steps=(step,),
        reads=frozenset({"length"}),
        outputs={
            "uses": Output("B", "samples", "uses", at=Use("read")["uses"], form=form),
            "number of columns from other samples": Output(
                "B", "", "columns_of_others", at=Use("read")["others"], form=form
            ),
        },
        settings=settings,
        reach="--prompt-data FILE, FILE@[-2:] or FILE@[1:], --rollout-max-prompt-len",
    )
