"""slime's data set: samples from the rows of a file, without prompts that are too long."""

import inspect
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.hub_rows import HubRows
from rl_sentinel.adapters.kit.pandas_rows import PandasRows
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant, Derived
from rl_sentinel.adapters.slime.rollout_fakes import FIRST, Words
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings

DATASET = "slime.utils.data.Dataset"

#: Setting -> options: ``last`` reads the last rows only, ``most`` drops prompts with more tokens, ``tools`` passes the
#: tools of each row to the chat template, with ``images`` every second row has images, with ``digits`` the labels
#: are numbers to a reader that guesses types, and with ``texts`` prompts are sent as they are, without the model's chat
#: template.
FAMILIES: Mapping[str, Settings] = {
    "default": {},
    "last rows": {"last": 2},
    "up to a length": {"most": 3},
    "labels of digits": {"digits": True},
    "tools": {"tools": True},
    "texts": {"texts": True},
    "images": {"images": True},
    "images, up to a length": {"images": True, "most": 3},
}

#: The parameter of the data set that names the column of tools.
_TOOLS = "tool_key"

#: slime's function that applies the chat template before each request, in revisions whose data set leaves that to it.
PREPARE = "slime.utils.processing_utils.prepare_model_inputs"

#: slime's reader of the images in messages, which needs packages for images.
VISION = "slime.utils.processing_utils.process_vision_info"

#: The text in the place of an image.
_IMAGE = "<image>"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the samples of a file, under the options that the release supports."""
    if not target.has(DATASET) or target.fails(DATASET):
        return
    init = target.find(DATASET).__init__
    module = init.__globals__
    sliced = "_parse_generalized_path" in module and "pd" not in module  # early releases read with pandas
    sees = "process_vision_info" in inspect.getsource(init) and target.has(VISION)
    read = {"last": sliced, "tools": _TOOLS in inspect.signature(init).parameters, "images": sees}
    settings = {name: options for name, options in FAMILIES.items() if all(read.get(key, True) for key in options)}
    prepare = PREPARE if target.has(PREPARE) and not target.fails(PREPARE) else None
    yield from bindable(target, _read(settings, {VISION: images_of_messages} if sees else {}, prepare))


class Template(Words):
    """A tokenizer whose chat template writes a checksum of the tools after the messages."""

    def apply_chat_template(self, messages: Any, *tools: object, **options: object) -> Any:  # noqa: ANN401 - messages
        """The contents of the messages and a checksum of the tools, as token ids or as text."""
        text = super().apply_chat_template(messages, tokenize=False)
        text += f"{checksum(options.get('tools', *tools[:1]))} "
        return self.encode(text) if options.get("tokenize", True) else text


class Processor(Words):
    """A tokenizer and processor of a model with vision in one object; images take no tokens."""

    def apply_chat_template(self, messages: Any, *_tools: object, **options: object) -> Any:  # noqa: ANN401 - messages
        """The text parts of the messages, as token ids or as text."""
        texts = "".join(part.get("text", "") for message in messages for part in parts_of(message["content"]))
        return self.encode(texts) if options.get("tokenize", True) else texts

    def __call__(self, text: Any, **options: object) -> dict[str, Any]:  # noqa: ANN401 - one text, or several
        """The token ids of texts; of one text with images, as a list with one row."""
        ids = super().__call__(text)
        return {"input_ids": [ids["input_ids"]]} if "images" in options else ids


def parts_of(content: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a text, or a list of parts
    """The parts of a message's content."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def images_of_messages(messages: Any, _processor: object) -> dict[str, list[Any] | None]:  # noqa: ANN401 - or a text
    """The images of messages in order, in slime's format; a text has no images."""
    parts = [] if isinstance(messages, str) else [part for one in messages for part in parts_of(one["content"])]
    return {"images": [part["image"] for part in parts if part["type"] == "image"] or None, "videos": None}


def images_of(number: int) -> list[str]:
    """The names of the images of a row: two for the first row and every second one after it, none for the others."""
    return [] if number % 2 else [f"first of {number}", f"second of {number}"]


def checksum(tools: object) -> int:
    """A number that is the same for the same tools."""
    return zlib.crc32(json.dumps(tools, sort_keys=True).encode())


def tools_of(number: int) -> list[dict[str, Any]]:
    """The tools of a row: one function, whose parameters have other names and entries than those of its neighbor."""
    kind = {"type": "string", "enum": ["a", "b"]} if number % 2 else {"type": "integer"}
    parameters = {"type": "object", "properties": {f"argument{number % 2}": kind}}
    return [{"type": "function", "function": {"name": f"tool{number}", "parameters": parameters}}]


def rows_of_samples(
    dataset: Callable[..., Any], prepare: Callable[..., Any] | None, prompts: list[int], options: Settings
) -> dict[str, list[float]]:
    """Read a file; return how often each row becomes a sample, and how many of its columns come from another row.

    For a row that must not become a sample, 1 is added to the count, so that 1 is correct for every row. ``prompts``
    has the number of tokens of each prompt. The label and the metadata of a row contain the index of the row. A sample
    in a wrong place counts as one column, and so do a label that is not the text of the file, tools that the chat
    template does not get as they are in the file, images that are not those of the row in order, and a text that is
    not sent as it is. The chat template is applied by the data set, or by ``prepare``.
    """
    with_tools, with_images = bool(options.get("tools")), bool(options.get("images"))
    rows = [_row(number, length, options) for number, length in enumerate(prompts)]
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
        other_tools = with_tools and int(_templated(sample, prepare, chat=True).split()[-1]) != checksum(tools_of(row))
        other_label = sample.label != rows[row]["label"]
        other_images = with_images and list((sample.multimodal_inputs or {}).get("images") or []) != images_of(row)
        other_text = bool(options.get("texts")) and _templated(sample, prepare, chat=False) != rows[row]["text"]
        wrong = other_place + other_label + other_tools + other_images + other_text
        others[row] = float(wrong + sum(source != row for source in columns))
    return {"uses": [float(count) for count in uses], "others": others}


def _templated(sample: Any, prepare: Callable[..., Any] | None, *, chat: bool) -> str:  # noqa: ANN401 - slime's class
    """The text that is sent for a sample's prompt; messages pass through the chat template, whether ``chat`` or not."""
    if prepare is None or isinstance(sample.prompt, str):
        return str(sample.prompt)
    known = inspect.signature(prepare).parameters
    asked = {"apply_chat_template": chat} if "apply_chat_template" in known else {}
    ids, _ = prepare(sample.prompt, Template(), None, sample.metadata, **asked)
    return Words().decode(ids)


def _first(prompt: Any) -> int:  # noqa: ANN401 - a text, or messages
    """The first number in the text of a prompt."""
    text = prompt if isinstance(prompt, str) else prompt[0]["content"]
    return int(text.split()[0])


def _row(number: int, length: int, options: Settings) -> dict[str, Any]:
    text = Words().decode([FIRST + number, *[FIRST] * (length - 1)])
    row: dict[str, Any] = {"text": text, "label": str(number), "metadata": {"row": number}}
    if options.get("digits"):
        row |= {"text": f"{text} {FIRST}", "label": f"0{number}"}  # no prompt is one number
    if options.get("images"):
        images = images_of(number)
        row |= {"text": _IMAGE.join(["", text, ""]) if images else text, "images": images or None}
    return row | ({"tools": tools_of(number)} if options.get("tools") else {})


def _samples(dataset: Callable[..., Any], file: Path, rows: list[dict[str, Any]], options: Settings) -> list[Any]:
    init: Any = vars(dataset)["__init__"]
    known = inspect.signature(init).parameters
    module: dict[str, Any] = init.__globals__
    last = options.get("last")
    arguments = {
        "path": f"{file}@[{_start(len(rows), int(last))}:]" if last else str(file),
        "tokenizer": Template() if options.get("tools") or options.get("texts") else Words(),
        "processor": None,
        "max_length": options.get("most"),
        "prompt_key": "text",
        "label_key": "label",
        "metadata_key": "metadata",
        "apply_chat_template_kwargs": {},
    }
    if options.get("tools"):
        arguments |= {_TOOLS: "tools", "apply_chat_template": True}
    if options.get("images"):
        vision = Processor()
        arguments |= {"tokenizer": vision, "processor": vision, "multimodal_keys": {"image": "images"}}
        arguments |= {"apply_chat_template": True}
    table = {"pd": PandasRows()} if options.get("digits") else {"read_file": lambda _path: iter(rows)}
    readers: dict[str, Any] = {"pd": table, "hf_ds": {"hf_ds": HubRows}}
    reader: dict[str, Any] = next((fake for name, fake in readers.items() if name in module), {})
    with replaced_globals(module, **reader):
        loaded: Any = dataset(**{name: value for name, value in arguments.items() if name in known})
    return list(loaded.samples)


def _start(rows: int, last: int) -> int:
    """The start of a slice of the last rows; negative for an even number of rows, so that both notations are tested."""
    return max(0, rows - last) if rows % 2 else -last


def _read(settings: Mapping[str, Settings], fakes: Mapping[str, Callable[..., Any]], prepare: str | None) -> Boundary:
    form = PerRow("list")
    return one_call(
        path=DATASET,
        stage="batch",
        call=rows_of_samples,
        name="read",
        fakes=fakes,
        arguments={
            "dataset": Constant(Function(DATASET)),
            "prepare": Constant(Function(prepare) if prepare else None),
            "prompts": Derived(lambda inputs: [1 + length for length in inputs.batch.length.tolist()]),
            "options": AllSettings(),
        },
        produced_by={"prompts": "slime/rollout/data_source.py, RolloutDataSource: Dataset of --prompt-data"},
        reads=frozenset({"length"}),
        outputs={
            "uses": Output("B", "samples", "uses", at=Use("read")["uses"], form=form),
            "number of columns from other samples": Output(
                "B", "", "columns_of_others", at=Use("read")["others"], form=form
            ),
        },
        settings=settings,
        reach="--prompt-data FILE, FILE@[-2:] or FILE@[1:], --rollout-max-prompt-len, --tool-key, --multimodal-keys; "
        "without --apply-chat-template",
    )
