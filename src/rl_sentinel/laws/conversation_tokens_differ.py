"""TOK001 conversation-tokens-differ: a conversation is tokenized or masked differently from its chat template.

What it says:
    A conversation that is tokenized message by message for training has the same tokens as when its template is applied
    to the whole conversation. Its loss mask covers the replies, each with its end token, and no other message. Sampled
    tokens keep the log-probs of the sampler. Trained tokens keep the experts that the sampler chose for them. Each
    position is the number of tokens before it. A row that is truncated keeps the start or the end of its prompt and of
    its completion, at most as many tokens as the limit, and at least one of the completion.

Why it matters:
    The sampler uses the template. If a turn is wrapped differently, a header is trained, or an end token is not
    trained, the policy learns on text that it will never have to continue.

A boundary that breaks it:
    >>> from itertools import groupby
    >>> def template(roles):  # results of tools that follow each other share one turn
    ...     return "".join(f"<{role}>" + "." * len(list(turn)) for role, turn in groupby(roles))
    >>> roles = ["reply", "tool", "tool"]
    >>> template(roles), "".join(template([role]) for role in roles)
    ('<reply>.<tool>..', '<reply>.<tool>.<tool>.')

How to fix it:
    Keep the token ids that were sampled and append only the tokens between replies. Do not decode and tokenize
    a reply again. Mark a reply from its first sampled token to its end token:
    ``rl_sentinel.signal.merging.merge`` joins steps whose tokens continue each other, and no others.

Where it does not apply:
    Boundaries that do not report at how many tokens they differ from the template (outputs of the quantities
    ``tokens_off_template``, ``tokens_off_limit``, ``mask_off_replies``, ``logprobs_off_sampled``,
    ``experts_off_sampled`` and ``positions_off_order``). White space after the end of a reply may be trained or not.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.core.phrasing import number

#: Quantity, in tokens per conversation -> the fault of these tokens.
QUANTITIES = {
    "tokens_off_template": "differ from the chat template applied to the whole conversation",
    "tokens_off_limit": (
        "break a length limit: a row keeps the start or the end of its prompt and of its completion, at most as many "
        "tokens as the limit, and at least one of the completion"
    ),
    "mask_off_replies": "have a wrong loss mask: it must cover each reply with its end token, and nothing else",
    "logprobs_off_sampled": "have a wrong log-prob: sampled tokens must keep theirs, and other tokens must have none",
    "positions_off_order": "have a wrong position: it must be the number of tokens before it, without padding",
    "experts_off_sampled": "have wrong experts: a trained token must be routed to those that the sampler chose",
}


def _counts(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.quantity in QUANTITIES and output.axes == "B"]


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not tokenize conversations"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name in _counts(ask.boundary):
        counts = seen[name]
        row = int(counts.ne(0).nonzero()[0]) if bool(counts.any()) else 0
        wrong = QUANTITIES[ask.boundary.outputs[name].quantity]
        says = f"{number(counts[row].item())} of the conversation's tokens at row {row} {wrong}"
        yield Equal(name, torch.zeros_like(counts), counts, None, tolerance=0.0, says=says)


LAW = Law(
    code="TOK001",
    name="conversation-tokens-differ",
    stages=frozenset({"batch"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
