"""SkyRL's model on FSDP: log-probs and entropies of the responses of a batch, packed or padded."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.causal_model import CausalModel, prompt_tokens, starts_of_positions, with_prompt_tokens
from rl_sentinel.adapters.kit.codecs import Column, ResponseMask
from rl_sentinel.adapters.kit.flash_attention import pad_input, unpad_input
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

MODEL = "skyrl.backends.skyrl_train.workers.model_wrapper.HFModelWrapper"
PATH = f"{MODEL}.forward"

#: Names of the option that packs a batch, newest first.
_PACKS = ("remove_microbatch_padding", "use_sample_packing")

_CLAIMS = claims(
    "model_wrapper.py, HFModelWrapper.forward: the log-probs of the actions, with the temperature of the sampler, and "
    "the entropy of the policy",
    output_algorithms={"logprob": "log-prob of the token", "entropy": "entropy of the logits"},
)
_PRODUCED = (
    "dataset/preprocess.py: prompts padded at the left, responses at the right (later all padding at the left); "
    "workers/worker.py: num_actions is the width of the responses, entropy of output['entropy'] before each action"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the forward pass of the policy, packed and padded."""
    if not target.has(PATH):
        return
    if why := target.fails(MODEL):
        yield Unbound(PATH, "batch", why)
    elif "compute_entropy" in inspect.signature(target.find(PATH)).parameters:
        yield from bindable(target, _pass())


class HuggingFace:
    """A fake model with the interface of transformers' models."""

    def __init__(self, model: CausalModel) -> None:
        """Wrap the model."""
        self.model = model

    def __call__(
        self, ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor, **_about: object
    ) -> dict[str, Tensor]:
        """Logits of packed sequences, which have no attention mask, or of padded sequences."""
        if attention_mask is not None:
            return {"logits": self.model.padded(ids, position_ids, attention_mask)}
        places = position_ids[0]
        return {"logits": self.model.packed(ids[0], places, starts_of_positions(places)).unsqueeze(0)}


def forward(  # noqa: PLR0913 - the parts of a batch, and the settings
    owner: Any,  # noqa: ANN401 - a class of the target
    logits: Tensor,
    tokens: Tensor,
    valid: Tensor,
    prompts: list[int],
    temperature: float,
    packed: bool,  # noqa: FBT001 - a setting
) -> dict[str, Tensor]:
    """Run the model's forward pass, and return the log-probs and entropies ``[B, T]`` of the responses."""
    width, longest = tokens.shape[1], 1 + max(prompts)
    logits, sequences, answers, rows = with_prompt_tokens(logits), [], [], []
    for row, length in enumerate(prompts):
        count = int(valid[row].sum())
        prompt = prompt_tokens(row, length, VOCABULARY)
        sequences.append([*prompt, *tokens[row, :count].tolist()])
        fill = logits.new_full((1, logits.shape[2]), 0.25)
        answers.append(torch.cat([fill.repeat(length - 1, 1), logits[row, :count], fill]))
        rows.append([*[0] * (longest - length), *sequences[-1], *[0] * (width - count)])
    ids = torch.tensor(rows)
    attended = torch.cat([torch.arange(longest) >= longest - torch.tensor(prompts).unsqueeze(1), valid.bool()], 1)
    code = owner.forward.__globals__
    parts = {"sequence_parallel_size": 1, "use_flash_attention_2": True, "attn_implementation": "flash_attention_2"}
    model = SimpleNamespace(
        model=HuggingFace(CausalModel(sequences, answers)),
        is_vlm=False,
        logprobs_chunk_size=2,  # shorter than a row, so that there are several chunks
        chunked_entropy_from_logits_fn=code["chunked_entropy_from_logits"],
        **parts,
        **dict.fromkeys(_PACKS, packed),
    )
    asked = {"attention_mask": attended.long(), "temperature": temperature, "return_output": True}
    with patch.dict(code, unpad_input=unpad_input, pad_input=pad_input):
        logprobs, output = owner.forward(model, ids, width, compute_entropy=True, **asked)
    return {"logprobs": logprobs, "entropy": output["entropy"][:, -width - 1 : -1]}


def _pass() -> Boundary:
    passed = Use("passed")
    return one_call(
        path=PATH,
        stage="batch",
        call=forward,
        name="passed",
        arguments={
            "owner": Constant(Function(MODEL)),
            "logits": Column("logits"),
            "tokens": Column("token"),
            "valid": ResponseMask(Padded(), torch.int64),
            "prompts": Derived(lambda inputs: (inputs.batch.prompt_length + 1).tolist()),
            **knobs("temperature", "packed"),
        },
        produced_by={"tokens": _PRODUCED},
        outputs={
            "logprob": Output("B T", "nats", "logprob", at=passed["logprobs"], form=Padded()),
            "entropy": Output("B T", "nats", "entropy", at=passed["entropy"], form=Padded()),
        },
        settings={
            "packed": {"temperature": 0.5, "packed": True},
            "padded": {"temperature": 0.5, "packed": False},
        },
        claims=_CLAIMS,
        reach="every run on FSDP; padded: trainer.remove_microbatch_padding (before: use_sample_packing) = False",
        requires=(no_empty_response,),
    )
