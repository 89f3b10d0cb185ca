"""TRL's tool-calling loop: checks that sampled tokens stay unchanged and that the correct tokens train."""

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import TRAINERS, WITH_TOOLS, trainer
from rl_sentinel.adapters.trl.dataset_preparation import a_few_rows, ids_of
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rollout_fakes import returned_names
from rl_sentinel.adapters.trl.tiny_trainer import END
from rl_sentinel.adapters.trl.token_differences import count_differences, mask_output, token_outputs
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: A token of a reply, a token that its parsed message lacks, and a token of the reply to the tool's result.
REPLY, HIDDEN, LAST = 6, 14, 15

#: The result of the tool.
RESULT = "w9"

_LOOP = (
    "grpo_trainer.py, _generate: the ids that were sampled and their parsed messages go into _tool_call_loop; a parser "
    "keeps only the parts of a reply that its schema names, so the message can differ from the sampled text"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the tool loop of each trainer that has a tool loop."""
    for kind in WITH_TOOLS:
        path = f"{TRAINERS[kind]}._tool_call_loop"
        if target.has(path) and not target.fails(path):
            yield from bindable(target, *(_loop(target, kind, path, hidden=hidden) for hidden in (True, False)))


def _loop(target: Target, kind: str, path: str, *, hidden: bool) -> Boundary:
    module = path.rsplit(".", 2)[0]
    fakes = {f"{module}.parse_response": parsed} if hasattr(target.module(module), "parse_response") else {}
    result = Use("differ")
    return one_call(
        path=path,
        stage="batch",
        call=called_tools,
        name="differ",
        arguments={
            "entry": Constant(Function(path)),
            "trainer": trainer(kind, {}),
            "lengths": ResponseMask(NoPadding()),
            "hidden": Knob("hidden"),
        },
        fakes=fakes,
        produced_by={"lengths": _LOOP},
        outputs=token_outputs(result) | mask_output(result),
        settings={"a call" if hidden else "a call, parsed whole": {"hidden": hidden}},
        claims=claims(_LOOP),
        reach="tools",
        requires=(no_empty_response,),
        domain=a_few_rows,
    )


def parsed(*_arguments: object, **_more: object) -> dict[str, Any]:
    """The message of a reply that calls no tool."""
    return {"role": "assistant", "content": "w12"}


def look() -> str:
    """A fake tool, which completions call."""
    return RESULT


def with_tools(trainer: Any, rows: int) -> Any:  # noqa: ANN401 - a trainer
    """The trainer with one tool per row. Each completion may call its tool once."""
    trainer.tools, trainer.chat_template, trainer.chat_template_kwargs, trainer.eos_token_id = [look], None, {}, END
    trainer.max_tool_calling_iterations, trainer.max_completion_length = 1, 64
    trainer._sync_tool_dicts = [{"look": look} for _ in range(rows)]  # noqa: SLF001 - where the trainer has its tools
    trainer._async_tool_dicts = [{} for _ in range(rows)]  # noqa: SLF001
    trainer._tool_dict = trainer._sync_tool_dict = {"look": look}  # noqa: SLF001 - of a trainer with the same for every row
    trainer._async_tool_dict = {}  # noqa: SLF001
    return trainer


def called_tools(
    entry: Callable[..., Any],
    trainer: Any,  # noqa: ANN401 - a trainer
    lengths: Tensor,
    *,
    hidden: bool,
) -> dict[str, list[float]]:
    """Count, per completion, the wrong tokens and, if all are right, the wrong mask values.

    With ``hidden``, each reply contains a token that its parsed message lacks.
    """
    counts = lengths.sum(1).tolist()
    ready, tokenizer = with_tools(copy(trainer), len(counts)), trainer.processing_class
    order = returned_names(type(trainer)._generate_single_turn)  # noqa: SLF001
    ready._generate_single_turn = partial(answered, order, tokenizer)  # noqa: SLF001 - where it samples
    questions = [[{"role": "user", "content": "w1"}] for _ in counts]
    prompts = [prompt_ids(tokenizer, question) for question in questions]
    sampled = [[*[REPLY] * count, *([HIDDEN] if hidden else []), END] for count in counts]
    call = [{"type": "function", "function": {"name": "look", "arguments": {}}}]
    messages = [[{"role": "assistant", "content": " ".join(["w3"] * count), "tool_calls": call}] for count in counts]
    rest = [None] * (len(_parameters(entry)) - len(("self", "prompts", "ids", "completions", "messages")))
    mask, _, ids, *_ = entry(ready, questions, [*prompts], [[*one] for one in sampled], messages, *rest)
    between = ids_of(tokenizer, f"w27 {RESULT} <eos> w28")
    off, wrong = [], []
    for row, own in enumerate(sampled):
        off.append(count_differences(ids[row], [*own, *between, LAST, END]))
        trains = [1] * len(own) + [0] * len(between) + [1, 1]
        wrong.append(0.0 if off[-1] else count_differences(mask[row], trains))
    return {"count": [float(count) for count in counts], "tokens": off, "masks": wrong}


def _parameters(entry: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(entry).parameters)


def prompt_ids(tokenizer: Any, prompt: list[Any]) -> list[int]:  # noqa: ANN401 - a tokenizer
    """The token ids of a prompt, which is either a conversation before a reply or already a list of ids."""
    if not isinstance(prompt[0], dict):
        return prompt
    return ids_of(tokenizer, tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True))


def answered(
    order: tuple[str, ...],
    tokenizer: Any,  # noqa: ANN401 - a tokenizer
    prompts: list[Any],
    *_arguments: object,
    **_more: object,
) -> Any:  # noqa: ANN401 - as the method
    """A reply to each tool result, in the form of :func:`in_order`."""
    read = [prompt_ids(tokenizer, prompt) for prompt in prompts]
    return in_order(order, read, [[LAST, END] for _ in prompts])


def in_order(order: tuple[str, ...], prompts: list[Any], replies: list[list[int]]) -> Any:  # noqa: ANN401 - as the method
    """Prompts and sampled replies, as a tuple in the order of the release; a single value is not in a tuple."""
    answers = {"prompt_ids": prompts, "completion_ids": replies}
    returned = tuple(answers.get(name) for name in order)
    return returned if len(returned) > 1 else returned[0]
