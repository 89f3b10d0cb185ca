"""Boundary of verl's agent loop whose tools return images: the images of a response beside its image tokens."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.chat_template import ChatTokenizer, Message
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import Script, differing, ending_with_reply, play, turns_of
from rl_sentinel.adapters.verl.conversations import a_few_turns
from rl_sentinel.adapters.verl.tool_messages import LOOP
from rl_sentinel.adapters.verl.tool_turns import loop_step, plays
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: The text of an image in a message, which is one token.
IMAGE = "<image>"

#: Setting -> the maximum number of response tokens: enough for all turns, or not for the result of each tool.
SETTINGS: dict[str, Settings] = {"images": {"limit": 200}, "images, limit": {"limit": 18}}

_DOCS = claims(
    "tools/schemas.py, ToolResponse: images that a tool returns; agent_loop.py, _agent_loop_postprocess: the processor "
    "gets the images of a response beside its tokens"
)
_PRODUCED = "agent_loop.py, _run_agent_loop: raw_prompt of the data set, and the processor of a model with vision"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop, in releases that render results with the processor alone.

    Later ones need the builder of a certain model with vision.
    """
    if not plays(target, LOOP):
        return
    source = inspect.getsource(target.find(LOOP))
    if "new_images_this_turn" in source and "_assert_mm_supported(" not in source:
        yield from try_bind(target, LOOP, "batch", lambda: list(_images(target)))


class ImageScript(Script):
    """A script whose tools return a text and an image; images have the numbers of the results in order."""

    async def execute(
        self, _instance: str, arguments: dict[str, int], **_options: object
    ) -> tuple[Any, float, dict[str, Any]]:
        """The result of a call, a reward, and metrics."""
        before = sum(len(results) for _, results in self.turns[: self.turn])
        number = arguments["number"]
        text = self.turns[self.turn][1][number]
        return self.response(text=text, image=[before + number]), 0.0, {}


class Processor:
    """A fake processor of a model with vision: each image is one token."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        """Store the tokenizer."""
        self.tokenizer, self.image_processor = tokenizer, SimpleNamespace(patch_size=14)

    def apply_chat_template(self, messages: Sequence[Message], **options: Any) -> Any:  # noqa: ANN401 - as the template
        """The conversation as the tokenizer renders it, with a token in the place of each image."""
        return self.tokenizer.apply_chat_template([_rendered(one) for one in messages], **options)

    def __call__(self, *, text: list[str], **_options: object) -> dict[str, Any]:
        """The tokens of a text, as one row."""
        ids = torch.tensor([self.tokenizer(text[0])["input_ids"]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _rendered(message: Message) -> Message:
    """The message with a text as its content."""
    if "content" not in message or isinstance(message["content"], str):
        return message
    texts = (IMAGE if part["type"] == "image" else part["text"] for part in message["content"])
    return {**message, "content": "".join(texts)}


class PromptData:
    """A fake data set class; its prompts have no images."""

    @staticmethod
    async def process_vision_info(*_passed: object, **_options: object) -> tuple[None, None]:
        """No images and no videos."""
        return None, None


def images_off_tokens(  # noqa: PLR0913 - classes of the target, and a setting
    loop: Any,  # noqa: ANN401 - a class of the target
    response: Callable[..., Any],
    call: Callable[..., Any],
    config: Any,  # noqa: ANN401 - the trainer's configuration
    masks: list[list[int]],
    limit: int,
) -> list[float]:
    """Count, per conversation, the images of the output that are not those of its image tokens, in order."""
    config.actor_rollout_ref.rollout.response_length = limit
    counts = []
    for mask in masks:
        messages = ending_with_reply(mask)
        tokenizer = ChatTokenizer("be brief")
        script = ImageScript(turns_of(messages), tokenizer, response, call)
        output = play(loop, script, messages[0], config, processor=Processor(tokenizer), dataset_cls=PromptData)
        text = tokenizer.decode([*output.prompt_ids, *output.response_ids])
        data = output.multi_modal_data or {}
        images = data.get("images", data.get("image")) or []
        counts.append(differing(images, range(len(re.findall(IMAGE, text)))))
    return counts


def _images(target: Target) -> Iterator[Boundary]:
    step = loop_step(target, LOOP, images_off_tokens, {"limit": Knob("limit")}, producer=_PRODUCED)
    for name, settings in SETTINGS.items():
        yield Boundary(
            path=f"{LOOP}.run",
            stage="batch",
            steps=(step,),
            reads=frozenset({"mask", "length"}),
            outputs={
                "images without their tokens": Output(
                    "B", "samples", "columns_of_others", at=Use("differ"), form=PerRow("list")
                )
            },
            settings={name: settings},
            claims=_DOCS,
            reach="tools that return images, with a model with vision",
            requires=(no_empty_response,),
            domain=a_few_turns,
        )
