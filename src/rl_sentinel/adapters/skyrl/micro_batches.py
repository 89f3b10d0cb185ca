"""SkyRL's split of a batch into micro-batches by rows or by tokens, and the results merged in the original order."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import PerRow, RightAligned
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Derived, Width, functions, knobs
from rl_sentinel.adapters.skyrl.arguments import PRODUCED_BY, Arguments, all_ones, arguments
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
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

#: ``rows`` and ``tokens`` per micro-batch (0 tokens: split by rows); another rank has ``behind`` more micro-batches.
SETTINGS: dict[str, Settings] = {
    "by rows": {"rows": 2, "tokens": 0, "behind": 0},
    "by tokens": {"rows": 1, "tokens": 6, "behind": 0},
    "by tokens, another rank has more": {"rows": 1, "tokens": 6, "behind": 2},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a worker's iterator over micro-batches, and its merge of their results."""
    if not target.has(MAKE) or target.fails(MAKE):
        return
    try:
        forms = arguments(target)
    except Unbindable as why:
        yield Unbound.because(MAKE, "batch", why)
        return
    yield from bindable(target, _split(forms))


def split_and_merge(  # noqa: PLR0913 - functions of the target, and the arguments of a worker
    make: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - the target's class
    by_tokens: Any,  # noqa: ANN401 - the target's class
    data: Any,  # noqa: ANN401 - the target's class
    rows: int,
    tokens: int,
    behind: int,
) -> dict[str, Any]:
    """Split a batch, merge the log-probs of the micro-batches like results, and count the uses of each row.

    A row without a trained token counts as used once.
    """
    synchronize = by_tokens._sync_num_microbatches  # noqa: SLF001 - communicates with other ranks
    by_tokens._sync_num_microbatches = lambda iterator: len(iterator._microbatches) + behind  # noqa: SLF001
    try:
        iterator = make(data, rows, tokens)
    finally:
        by_tokens._sync_num_microbatches = synchronize  # noqa: SLF001
    results, uses = [], torch.zeros(data.batch_size)
    for batch in iterator:
        trained = batch["loss_mask"].sum(1) > 0
        numbers = batch["row"] if "row" in batch else torch.zeros(len(trained), dtype=torch.long)
        uses.index_add_(0, numbers[trained], torch.ones(int(trained.sum())))
        results.append(kind({"output": batch["action_log_probs"]}))
    untrained = data["loss_mask"].sum(1) == 0
    return {"output": iterator.reorder_and_combine_batches(results)["output"], "uses": uses + untrained}


def _split(forms: Arguments) -> Boundary:
    tensors: dict[str, Codec] = {
        "sequences": Derived(all_ones, frozenset({"extra"})),
        "attention_mask": Derived(lambda inputs: _attention_mask(forms, inputs), frozenset({"extra"})),
        "response_mask": forms.response_mask,
        "loss_mask": forms.loss_mask,
        "action_log_probs": forms.column("old_logprob"),
        "row": Derived(lambda inputs: torch.arange(inputs.batch.rows)),
    }
    metadata: dict[str, Codec] = {"response_length": Width()}
    merged = Use("merged")
    return one_call(
        path=MAKE,
        stage="batch",
        call=split_and_merge,
        name="merged",
        arguments={
            **functions(make=MAKE, kind=OUTPUT, by_tokens=BY_TOKENS),
            "data": forms.batch(tensors, metadata),
            **knobs("rows", "tokens", "behind"),
        },
        produced_by={"data": PRODUCED_BY},
        reads=frozenset({"old_logprob", "mask"}),
        outputs={
            "old_logprob": Output("B T", "nats", "old_logprob", at=merged["output"], form=forms.form),
            "uses": Output("B", "", "uses", at=merged["uses"], form=PerRow()),
        },
        settings=SETTINGS,
        claims=_CLAIMS,
        reach="every forward pass; trainer.max_tokens_per_microbatch above 0",
        requires=(no_empty_response,),
    )


def _attention_mask(forms: Arguments, inputs: Inputs) -> torch.Tensor:
    """The attention mask of a prompt of one token and a response, padded on the side where the release pads."""
    response: torch.Tensor = forms.response_mask.put(inputs)
    prompt = torch.ones_like(response[:, :1])
    return torch.cat([response, prompt] if isinstance(forms.form, RightAligned) else [prompt, response], dim=1)
