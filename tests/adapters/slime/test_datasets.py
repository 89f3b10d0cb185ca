"""slime's data sets, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_only
from rl_sentinel.adapters.slime import FRAMEWORK, datasets
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

DATA = """
    import json
    import pathlib
    import re
    from types import SimpleNamespace

    hf_ds = None  # the data sets of a package that is not installed

    def read_number(line):
        row = json.loads(line)
        return {**row, "label": int(row["label"])}

    def _parse_generalized_path(path):
        found = re.match("(.*)@\\\\[(-?[0-9]*):]$", path)
        return (found[1], int(found[2])) if found else (path, 0)

    class Dataset:
        def __init__(
            self, path, tokenizer, processor, max_length, *, prompt_key, label_key, metadata_key, tool_key=None,
            multimodal_keys=None, **template
        ):
            file, start = _parse_generalized_path(path)
            rows = [*READ][start:]
            if tool_key:
                texts = [tokenizer.apply_chat_template(row[prompt_key], TOOLS, tokenize=False) for row in rows]
                rows = [{**row, prompt_key: text} for row, text in zip(rows, texts)]
            for row in rows if multimodal_keys else []:
                from slime.utils.processing_utils import process_vision_info
                images, parts = list(row["images"] or []), []
                for part in re.split("(<image>)", row[prompt_key]):
                    image = {"type": "image", "image": images.pop(NEXT)} if part == "<image>" else None
                    parts += [image or {"type": "text", "text": part}] if part else []
                row["seen"] = process_vision_info([{"content": parts}], processor)
                row[prompt_key] = tokenizer.apply_chat_template([{"content": parts}], tokenize=False)
            rows = [row for row in rows if max_length is None or LENGTH <= max_length]
            if multimodal_keys and max_length:
                rows = SORTED
            keys = {"prompt": prompt_key, "label": label_key, "metadata": metadata_key}
            self.samples = [SimpleNamespace(**{name: row[key] for name, key in keys.items()}) for row in ORDER]
            for sample, row in zip(self.samples, ORDER):
                sample.multimodal_inputs = row.get("seen")
"""


SOUND = {
    "LENGTH": "len(tokenizer.encode(row[prompt_key]))",
    "NEXT": "0",
    "SORTED": "rows",
    "ORDER": "rows",
    "READ": "map(json.loads, pathlib.Path(file).read_text().splitlines())",
    "TOOLS": "row[tool_key]",
}


def _bound(loads: Loads, **words: str) -> tuple[Target, Boundary]:
    source = DATA
    for name, word in {**SOUND, **words}.items():
        source = source.replace(name, word)
    vision = "def process_vision_info(messages, processor):\n    raise RuntimeError('an image is asked for')\n"
    target = loads(FRAMEWORK, {"slime/utils/data.py": source, "slime/utils/processing_utils.py": vision})
    return target, the_only(datasets.boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    assert set(boundary.settings) == set(datasets.FAMILIES)
    assert answering({("data", setting): boundary for setting in boundary.settings}, target) == []


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (DAT002, "up to a length", {"LENGTH": "len(row[prompt_key])"}),
        (DAT001, "default", {"ORDER": "rows[::-1]"}),
        (DAT002, "last rows", {"ORDER": "rows[1:]"}),
        (DAT001, "tools", {"TOOLS": "rows[0][tool_key]"}),
        (DAT001, "tools", {"READ": "hf_ds.from_json(file)"}),
        (DAT001, "labels of digits", {"READ": "map(read_number, pathlib.Path(file).read_text().splitlines())"}),
        (DAT001, "images", {"NEXT": "-1"}),
        (DAT001, "images, up to a length", {"SORTED": "sorted(rows, key=lambda row: row['images'] is not None)"}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """A length in characters; another order; a row too few; tools of the first row; tools with the keys of all.

    Labels as numbers; images in another order; rows without images before those with images.
    """
    target, boundary = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundary, setting, target, found=found)


PREPARE = """
    def prepare_model_inputs(prompt, tokenizer, processor=None, metadata=None, apply_chat_template=False):
        text = tokenizer.apply_chat_template(prompt, tools=metadata["tools"], tokenize=False)
        return tokenizer.encode(text), {}
"""


@pytest.mark.parametrize(("tools", "found"), [("row[tool_key]", False), ("rows[0][tool_key]", True)])
def test_template_before_the_request(loads: Loads, tools: str, *, found: bool) -> None:
    """A data set of messages, for a chat template that is applied before each request."""
    applied = "tokenizer.apply_chat_template(row[prompt_key], TOOLS, tokenize=False)"
    assert applied in DATA
    source = DATA.replace(applied, 'row["metadata"].update(tools=TOOLS) or [{"content": row[prompt_key]}]')
    for name, word in {**SOUND, "TOOLS": tools}.items():
        source = source.replace(name, word)
    target = loads(FRAMEWORK, {"slime/utils/data.py": source, "slime/utils/processing_utils.py": PREPARE})
    check_verdict(DAT001, the_only(datasets.boundaries(target)), "tools", target, found=found)


@pytest.mark.parametrize(("chat", "found"), [("template.get('apply_chat_template')", False), ("True", True)])
def test_texts_without_a_template(loads: Loads, chat: str, *, found: bool) -> None:
    """A text becomes messages only if a chat template is asked for."""
    source = DATA.replace(
        "keys = {",
        f"""
            for row in rows if {chat} else []:
                row[prompt_key] = [{{"content": row[prompt_key]}}]
            keys = {{""".lstrip(),
    )
    for name, word in SOUND.items():
        source = source.replace(name, word)
    prepare = PREPARE.replace('metadata["tools"]', "None").replace(", apply_chat_template=False", "")
    target = loads(FRAMEWORK, {"slime/utils/data.py": source, "slime/utils/processing_utils.py": prepare})
    check_verdict(DAT001, the_only(datasets.boundaries(target)), "texts", target, found=found)


TABLE = """
    from types import SimpleNamespace

    pd = None  # a package that is not installed

    def read_file(path):
        for _, row in pd.read_json(path, lines=True, dtype=TYPE).iterrows():
            yield row.to_dict()

    class Dataset:
        def __init__(self, path, tokenizer, max_length, *, prompt_key, label_key, metadata_key):
            keys = {"prompt": prompt_key, "label": label_key, "metadata": metadata_key}
            self.samples = [
                SimpleNamespace(**{name: row[key] for name, key in keys.items()}) for row in read_file(path)
            ]
"""


@pytest.mark.parametrize(("type_", "found"), [("None", True), ("{'label': str}", False), ("False", False)])
def test_tables_of_pandas(loads: Loads, type_: str, *, found: bool) -> None:
    """Columns whose type is inferred, a column of texts, and columns that stay as they are."""
    target = loads(FRAMEWORK, {"slime/utils/data.py": TABLE.replace("TYPE", type_)})
    check_verdict(DAT001, the_only(datasets.boundaries(target)), "labels of digits", target, found=found)
