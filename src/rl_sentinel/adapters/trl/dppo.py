"""TRL's DPPO over micro-batches: a policy loss with a trust region on the divergence of each sampled token."""

from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Computed
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself, training
from rl_sentinel.adapters.trl.losses import loss_step
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

DPPO = "trl.experimental.dppo.dppo_trainer.DPPOTrainer"

#: Setting -> fields of the configuration. Divergences over the most likely tokens need the sampler's logits.
SETTINGS: Mapping[str, Settings] = {
    "default": {"divergence_type": "binary_tv", "clip_low": 0.15, "clip_high": 0.15},
    "binary KL": {"divergence_type": "binary_kl", "clip_low": 0.05, "clip_high": 0.05},
    "KL": {"divergence_type": "binary_tv", "clip_low": 0.15, "clip_high": 0.15, "kl_loss_coef": 0.25},
}

_LOSS = claims(
    "dppo_trainer.py, _compute_loss: (per_token_loss * mask).sum() / num_items_in_batch, as loss_type dapo",
    aggregation="token-mean",
    denominator="given",
)
_PRODUCER = (
    "dppo_trainer.py, _generate_and_score_completions: the sampler's log-probs, and num_items_in_batch as in GRPO: the "
    "tokens of all completions that no tool gave"
)

_ALL_TRAINED = Computed(
    frozenset({"mask"}),
    lambda inputs: inputs.mini_batch.mask.sum(),
    "which tokens are trained cannot be read from a count",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss with each binary divergence, and with a KL term."""
    path = f"{DPPO}._compute_loss"
    if not target.has(path):
        return
    if why := target.fails(DPPO):
        yield Unbound(path, "policy-loss", why)
        return
    if "divergence_type" in fields_of(target, DPPO):
        yield from bindable(target, *(_loss(path, name) for name in SETTINGS))


def _loss(path: str, name: str) -> Boundary:
    settings = SETTINGS[name]
    columns: dict[str, Codec] = {
        "sampling_per_token_logps": Column("old_logprob"),
        "num_items_in_batch": _ALL_TRAINED,
        **({"ref_per_token_logps": Column("ref_logprob")} if "kl_loss_coef" in settings else {}),
    }
    before = Step(call=itself, name="trainer", arguments={"trainer": training("grpo", settings, derived=DPPO)})
    loss = loss_step(path, columns, tools=True, producer=_PRODUCER)
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(before, loss),
        unused=frozenset({"token", "prompt_length", "entropy"}),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum")},
        settings={name: settings},
        claims=_LOSS,
        reach=", ".join(f"{k}={v}" for k, v in settings.items()),
        requires=(equal_micro_batches, no_empty_response, every_row_trains),
    )
