"""Labels of completions that the student samples, in TRL's distillation."""

import inspect
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.result_forms import AsReturned
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.adapters.trl.distillation_codecs import EndedCompletions, every_completion_trains
from rl_sentinel.core.batch import Batch, take_positions
from rl_sentinel.core.boundary import Boundary, Output, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec


def boundary(target: Target, path: str) -> Boundary:
    """The boundary of the labels of sampled completions; as in many tokenizers, one token is both padding and EOS."""
    parameters = inspect.signature(target.find(path)).parameters
    arguments: dict[str, Codec] = {
        **functions(generate=path, kind=path.rpartition(".")[0]),
        "completions": EndedCompletions(),
        "width": Derived(lambda inputs: inputs.batch.width),
        "pads": Constant("pad_token_id" in parameters),
    }
    return one_call(
        path=path,
        stage="batch",
        call=sampled_labels,
        name="sampled",
        arguments=arguments,
        outputs={"mask": Output("B T", "", "mask", at=Use("sampled"), form=AsReturned())},
        claims=claims("gkd_trainer.py: labels of the generated completion, including its EOS", conserves=True),
        reach="lmbda above 0, and a tokenizer whose padding token is its end token",
        requires=(no_empty_response, every_row_trains, trains_whole_completions),
        domain=longest_fills_the_width,
    )


def longest_fills_the_width(batch: Batch) -> Batch:
    """The batch with whole completions trained, and with the width of the longest completion."""
    whole = every_completion_trains(batch)
    longest = int(whole.length.max()) if whole.rows else whole.width
    return whole if longest == whole.width else take_positions(whole, torch.arange(longest))


def sampled_labels(
    generate: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    completions: list[list[int]],
    width: int,
    *,
    pads: bool,
) -> Tensor:
    """Let the student sample, and return 1 at each completion token that has a label.

    Token 1 is both padding and EOS.
    """
    if "self" in inspect.signature(generate).parameters:
        words = SimpleNamespace(decode=_text)
        generate = partial(generate, bare_instance(kind, processing_class=words, use_transformers_paged=False))
    longest, prompts = max(map(len, completions)), torch.full((len(completions), 2), 4)
    rows = torch.tensor([ids + [1] * (longest - len(ids)) for ids in completions])
    sequences = torch.cat([prompts, rows], 1)
    model = SimpleNamespace(generate=lambda **_options: SimpleNamespace(sequences=sequences))
    config = SimpleNamespace(eos_token_id=1, pad_token_id=1)
    inputs = {"prompts": prompts, "prompt_attention_mask": torch.ones_like(prompts)}
    _, _, labels, *_ = generate(model, inputs, config, 1) if pads else generate(model, inputs, config)
    return pad((labels[:, 2:] != -100).float(), (0, width - longest))


def _text(_ids: object, **_options: object) -> str:
    """Decode any token ids to the same text, in place of the tokenizer."""
    return "w1"
