"""Online DPO in TRL before 0.10, as a single-method training loop: loss, logged metrics and logged steps."""

from collections.abc import Iterator

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.loop_codecs import TRAINED, loop_step
from rl_sentinel.adapters.trl.loop_steps import logged_steps
from rl_sentinel.adapters.trl.online_dpo import ONLINE, PAIRS, REQUIRED, as_sampled_pairs, pair_metrics
from rl_sentinel.adapters.trl.pair_samplers import TWO
from rl_sentinel.adapters.trl.preferences import PAIRED
from rl_sentinel.adapters.trl.release import fields_of, source_of
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.claims import claims

_DOCS = (
    "online_dpo_trainer.py, train: losses of pairs of sampled responses, the one with the higher score is chosen; "
    "objective/kl is of the policy that sampled and its reference"
)

#: The first response to each prompt wins.
_WINNERS = Derived(lambda inputs: (torch.arange(inputs.batch.rows) % TWO == 0).float())


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundaries of the loop, in releases that have it."""
    path = f"{ONLINE}.train"
    if not target.has(path) or not {"num_epochs", "beta"} <= set(fields_of(target, ONLINE)):
        return
    if why := target.fails(path):
        yield Unbound(path, "policy-loss", why)
        return
    source = source_of(target.find(path))
    if "num_generation_per_prompt" not in source:
        return  # the loop of transformers
    yield from bindable(target, _updates(path, source))
    if "self.log(" in source:
        yield from bindable(target, logged_steps(path, TWO))


def _updates(path: str, source: str) -> Boundary:
    """The boundary of the loss and of the logged metrics; the policy that samples is the policy that trains."""
    outputs, claimed = pair_metrics(source, _DOCS)
    known = {**PAIRS, "old_logprobs": PAIRS["logprobs"], "scores": _WINNERS}
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(loop_step(path, {"beta": 0.5}, known),),
        outputs={"loss": Output("", "", "loss", at=TRAINED["loss"]), **outputs},
        settings={"sampled pairs": {"beta": 0.5}},
        claims=PAIRED | claimed | claims(_DOCS, algorithm="dpo"),
        reach="every step",
        requires=REQUIRED,
        domain=as_sampled_pairs,
    )
