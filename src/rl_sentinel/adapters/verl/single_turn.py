"""verl's single-turn data sets: RL prompts, prompts with replies, and preference pairs, with their masks."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.containers import EachRow
from rl_sentinel.adapters.kit.conversations import difference_outputs
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.single_turn_rows import compare_pairs, compare_prompts, compare_replies
from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

_FOLDER = "verl.utils.dataset"
PROMPTS = f"{_FOLDER}.rl_dataset.RLHFDataset"
REPLIES = f"{_FOLDER}.sft_dataset.SFTDataset"
PAIRS = f"{_FOLDER}.rm_dataset.RMDataset"

#: Maximum number of rows, and of words of a row's text.
ROWS, WORDS = 3, 4

#: Maximum tokens of a prompt with two words: the template has 7 tokens, a word has 2, a system message 6, an image 4.
#: With a single token per image, three words fit.
LIMIT, WITH_SYSTEM, WITH_IMAGE = 11, 17, 14

#: A word stands for each token of a row.
TOKENS_OF_ROWS = EachRow(RowTokens("mask", "int"))

#: Setting -> what becomes of prompts above the limit, and a system message among the template's options.
PROMPT_FAMILIES: Mapping[str, Settings] = {
    "long prompts filtered": {"truncation": "error", "system": "", "limit": LIMIT},
    "long prompts filtered, template options": {"truncation": "error", "system": "short", "limit": WITH_SYSTEM},
    "long prompts filtered, images": {"truncation": "left", "system": "", "limit": WITH_IMAGE, "images": True},
    "cut at the left": {"truncation": "left", "system": "", "limit": LIMIT},
    "cut at the right": {"truncation": "right", "system": "", "limit": LIMIT},
    "cut in the middle": {"truncation": "middle", "system": "", "limit": LIMIT},
}

_PROMPTS = (
    "docs/examples/config.rst, data: filter_overlong_prompts and max_prompt_length drop prompts above the limit, "
    "truncation cuts them left, right or in the middle; prompts are tokenized by the chat template and padded left"
)
_REPLIES = (
    "sft_dataset.py, __getitem__, comments: the prompt is masked out for SFT, and the last token of the response, for "
    "masks that mark the position before a trained token"
)
_PAIRS = "rm_dataset.py: prompt and response with EOS, padded or cut at the right to max_length, with their mask"


def unmoved(src: str, *_about: object, **_options: object) -> str:
    """The path, unchanged, because the file is already local."""
    return src


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data set of prompts with each setting for long prompts, and of replies and pairs."""
    if _reads(target, PROMPTS, "datasets"):
        yield from try_bind(target, PROMPTS, "batch", lambda: list(_prompts(target)))
    for path, compare, docs in ((REPLIES, compare_replies, _REPLIES), (PAIRS, compare_pairs, _PAIRS)):
        if _reads(target, path, "pd"):
            yield from try_bind(target, path, "batch", partial(_plain, target, path, compare, docs))


def _reads(target: Target, path: str, package: str) -> bool:
    """Whether the release has this data set and reads the files with this package."""
    if not target.has(path) or target.fails(path):
        return False
    constructor = vars(target.find(path)).get("__init__")
    return constructor is not None and package in constructor.__globals__


def a_few_words(batch: Batch) -> Batch:
    """The first :data:`ROWS` rows, with at most :data:`WORDS` words each: a row does not depend on others."""
    few = take_rows(batch, torch.arange(ROWS)) if batch.rows > ROWS else batch
    length = few.length.clamp(1, WORDS)
    return few if bool((length == few.length).all()) else with_columns(few, length=length)


def fakes_of_files(target: Target, path: str) -> dict[str, Callable[..., Any]]:
    """Fakes of the functions that copy the files of a data set."""
    module = path.rpartition(".")[0]
    places = ("verl.utils.fs.copy_to_local", f"{module}.copy_to_local", f"{module}.copy_local_path_from_hdfs")
    fakes: dict[str, Callable[..., Any]] = dict.fromkeys(places, unmoved)
    fakes[f"{module}.download_files_distributed"] = nothing
    return present(target, fakes)


def _prompts(target: Target) -> Iterator[Boundary]:
    source = inspect.getsource(target.find(PROMPTS))
    tokenizes = "raw_prompt_ids" in source
    for name, settings in PROMPT_FAMILIES.items():
        if settings["system"] and "apply_chat_template_kwargs" not in source:
            continue
        images = "images" in settings
        if images and "image_key" not in source:
            continue
        if (
            not images
            and settings["truncation"] != "error"
            and (not tokenizes or f'"{settings["truncation"]}"' not in source)
        ):
            continue
        step = Step(
            call=compare_prompts,
            name="differ",
            arguments={
                "dataset": Constant(Function(PROMPTS)),
                "rows": TOKENS_OF_ROWS,
                **knobs("truncation", "system", "limit"),
                "images": Knob("images", default=False),
            },
            remembered=True,
            fakes=fakes_of_files(target, PROMPTS),
            produced_by={"rows": "a Parquet file with a column of messages, as examples/data_preprocess writes it"},
        )
        result, form = Use("differ"), PerRow("list")
        outputs = {
            "tokens": Output("B", "tokens", at=result["count"], form=form),
            "number of tokens that differ from the template": Output(
                "B", "tokens", "tokens_off_template", at=result["tokens"], form=form
            ),
            "uses of a prompt": Output("B", "samples", "uses", at=result["uses"], form=form),
        }
        if images:
            del outputs["number of tokens that differ from the template"]
        reach = "data.filter_overlong_prompts=True, a column of images (data.image_key)" if images else "every run"
        yield _boundary(PROMPTS, step, name, settings, outputs, _PROMPTS, reach)


def _plain(target: Target, path: str, compare: Callable[..., Any], docs: str) -> list[Boundary]:
    step = Step(
        call=compare,
        name="differ",
        arguments={"dataset": Constant(Function(path)), "rows": TOKENS_OF_ROWS},
        remembered=True,
        fakes=fakes_of_files(target, path),
        produced_by={"rows": "a Parquet file with columns of texts, as examples/data_preprocess writes it"},
    )
    return [_boundary(path, step, "default", {}, difference_outputs(Use("differ")), docs, "a data set of this class")]


def _boundary(  # noqa: PLR0913 - the parts in which they differ
    path: str, step: Step, name: str, settings: Settings, outputs: Mapping[str, Output], docs: str, reach: str
) -> Boundary:
    return Boundary(
        path=f"{path}.__getitem__",
        stage="batch",
        steps=(step,),
        reads=frozenset({"length"}),
        outputs=outputs,
        settings={name: settings},
        claims=claims(docs),
        reach=reach,
        requires=(no_empty_response,),
        domain=a_few_words,
    )
