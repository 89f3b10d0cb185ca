"""TRL's GMPO over micro-batches: ``_compute_loss`` with the geometric mean of clipped ratios."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import equal_micro_batches, no_empty_response
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import FIELDS, itself, training
from rl_sentinel.adapters.trl.loss_families import CHOSEN, MASKED, RATIO, ROW
from rl_sentinel.adapters.trl.losses import logged_metrics, loss_step
from rl_sentinel.adapters.trl.release import reads_tool_mask, source_of
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

GMPO = "trl.experimental.gmpo.gmpo_trainer.GMPOTrainer"

_PLAIN: Settings = {"clip_low": 0.4, "clip_high": 0.3, **MASKED}

_DOC = "gmpo_trainer.py, GMPOTrainer, docstring: https://huggingface.co/papers/2507.20673"
_ROWS = claims(
    "gmpo_trainer.py, comment: a plain mean over sequences", aggregation="sequence-mean-token-mean"
) | claims("gmpo_trainer.py: per_sequence_loss.mean()", rows="all")
_LOSS = (
    _ROWS
    | claims(_DOC, algorithm="gmpo")
    | claims("gmpo_trainer.py: divided by current_gradient_accumulation_steps, as one large batch", denominator="given")
)

#: Name -> settings and claims.
_FORMS: Mapping[str, tuple[Settings, Claims]] = {
    "default": (_PLAIN, _LOSS),
    "KL": (
        {**_PLAIN, "kl_loss_coef": 0.25},
        _LOSS
        | claims(
            "gmpo_trainer.py: exp(ref - logp) - (ref - logp) - 1",
            kl="k3",
            output_pairs={"kl": "logprob against ref_logprob"},
        ),
    ),
    "top entropy": (
        {**_PLAIN, "top_entropy_quantile": 0.25},
        CHOSEN | claims(f"{_DOC}, over the tokens of high entropy", algorithm="gmpo of uncertain tokens") | _ROWS,
    ),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss: plain, with a KL term, and over tokens of high entropy."""
    path = f"{GMPO}._compute_loss"
    yield from try_bind(target, path, "policy-loss", lambda: (_loss(target, path, name) for name in _FORMS))


def _loss(target: Target, path: str, name: str) -> Boundary:
    settings, claimed = _FORMS[name]
    columns: dict[str, Codec] = {"old_per_token_logps": Column("old_logprob")}
    columns |= {"ref_per_token_logps": Column("ref_logprob")} if "kl_loss_coef" in settings else {}
    before = Step(call=itself, name="trainer", arguments={"trainer": training("grpo", settings, derived=GMPO)})
    producer = "grpo_trainer.py, _generate_and_score_completions, which GMPOTrainer inherits"
    loss = loss_step(path, columns, tools=reads_tool_mask(target), producer=producer)
    place = Use("trainer").attribute("_metrics")["train"]
    logged, _ = logged_metrics(source_of(target.find(path)), settings, place)
    # The range of the log-ratio is clipped, not the range of the ratio.
    logged = {n: replace(o, quantity="", over="") if n.startswith("clip") else o for n, o in logged.items()}
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(before, loss),
        unused=frozenset({"token", "prompt_length"}),
        outputs={"loss": Output("", "", "loss", at=Use("loss"), join="sum"), **logged},
        settings={name: settings},
        claims=RATIO | ROW | claimed,
        reach=", ".join(f"{FIELDS.get(k, k)}={v}" for k, v in settings.items()),
        requires=(equal_micro_batches, no_empty_response),
    )
