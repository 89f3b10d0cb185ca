"""SkyRL's micro-batches by rows or by tokens, and their results restored to the original order."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow, RightAligned
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Knob, Width
from rl_sentinel.adapters.skyrl.arguments import PRODUCED_BY, Arguments, arguments, one_per_token
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable

MODULE = "skyrl.backends.skyrl_train.workers.worker_utils"
MAKE, BY_TOKENS = f"{MODULE}.get_microbatch_iterator", f"{MODULE}.TokenBasedBatchIterator"
OUTPUT = "skyrl.backends.skyrl_train.training_batch.TensorBatch"

_CLAIMS = claims(
    "worker_utils.py, reorder_and_combine_batches, docstring: a single batch in the order of the original input",
    conserves=True,
)

#: Rows of a micro-batch, its tokens (0: by rows), and micro-batches that another rank has more.
SETTINGS: dict[str, Settings] = {
    "by rows": {"rows": 2, "tokens": 0, "behind": 0},
    "by tokens": {"rows": 1, "tokens": 6, "behind": 0},
    "by tokens, another rank has more": {"rows": 1, "tokens": 6, "behind": 2},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The iterator that a worker asks for, and what it makes of the answers."""
    if not target.has(MAKE) or target.fails(MAKE):
        return
    try:
        forms = arguments(target)
    except Unbindable as why:
        yield Unbound(MAKE, "batch", str(why))
        return
    yield from bindable(target, _cut(target, forms))


def answered(  # noqa: PLR0913 - what a worker has at hand
    make: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - the target's class
    by_tokens: Any,  # noqa: ANN401 - the target's class
    data: Any,  # noqa: ANN401 - the target's class
    rows: int,
    tokens: int,
    behind: int,
) -> dict[str, Any]:
    """A batch through a worker that answers with the columns it was passed; how often each row trained."""
    synchronise = by_tokens._sync_num_microbatches  # noqa: SLF001 - asks other ranks
    by_tokens._sync_num_microbatches = lambda iterator: len(iterator._microbatches) + behind  # noqa: SLF001
    try:
        iterator = make(data, rows, tokens)
    finally:
        by_tokens._sync_num_microbatches = synchronise  # noqa: SLF001
    answers, used = [], torch.zeros(data.batch_size)
    for batch in iterator:
        trained = batch["loss_mask"].sum(1) > 0
        numbers = batch["row"] if "row" in batch else torch.zeros(len(trained), dtype=torch.long)
        used.index_add_(0, numbers[trained], torch.ones(int(trained.sum())))
        answers.append(kind({"output": batch["action_log_probs"]}))
    untrained = data["loss_mask"].sum(1) == 0
    return {"output": iterator.reorder_and_combine_batches(answers)["output"], "uses": used + untrained}


def _cut(_target: Target, forms: Arguments) -> Boundary:
    tensors: dict[str, Codec] = {
        "sequences": Derived(one_per_token, frozenset({"extra"})),
        "attention_mask": Derived(lambda inputs: _attended(forms, inputs), frozenset({"extra"})),
        "response_mask": forms.response_mask,
        "loss_mask": forms.loss_mask,
        "action_log_probs": forms.column("old_logprob"),
        "row": Derived(lambda inputs: torch.arange(inputs.batch.rows)),
    }
    about: dict[str, Codec] = {"response_length": Width()}
    step = Step(
        call=answered,
        name="answered",
        arguments={
            "make": Constant(Function(MAKE)),
            "kind": Constant(Function(OUTPUT)),
            "by_tokens": Constant(Function(BY_TOKENS)),
            "data": forms.batch(tensors, about),
            **{name: Knob(name) for name in ("rows", "tokens", "behind")},
        },
        produced_by={"data": PRODUCED_BY},
    )
    made = Use("answered")
    return Boundary(
        path=MAKE,
        stage="batch",
        steps=(step,),
        reads=frozenset({"old_logprob", "mask"}),
        outputs={
            "old_logprob": Output("B T", "nats", "old_logprob", at=made["output"], form=forms.form),
            "uses": Output("B", "", "uses", at=made["uses"], form=PerRow()),
        },
        settings=SETTINGS,
        claims=_CLAIMS,
        reach="every forward pass; trainer.max_tokens_per_microbatch above 0",
        requires=(no_empty_response,),
    )


def _attended(forms: Arguments, inputs: Inputs) -> torch.Tensor:
    """The prompt's token and those of the response, at the end or at the start of the row as the release has them."""
    response: torch.Tensor = forms.response_mask.put(inputs)
    prompt = torch.ones_like(response[:, :1])
    return torch.cat([response, prompt] if isinstance(forms.form, RightAligned) else [prompt, response], dim=1)
