"""slime's KL estimators."""

import inspect
from collections.abc import Iterator, Mapping

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.forms import Packed
from rl_sentinel.adapters.kit.value_codecs import Knob
from rl_sentinel.adapters.slime.arguments import PPO, packed
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call

PATH = f"{PPO}.compute_approx_kl"

#: slime's name of a KL estimator -> its usual name.
KINDS: Mapping[str, str] = {"k1": "k1", "kl": "k1", "k2": "k2", "k3": "k3", "low_var_kl": "k3"}


def kinds(target: Target) -> Mapping[str, str]:
    """The estimators in :data:`KINDS` that the revision has; all of them if none is found."""
    if not target.has(PATH) or target.fails(PATH):
        return KINDS
    source = inspect.getsource(target.find(PATH))
    return {kind: name for kind, name in KINDS.items() if f'"{kind}"' in source} or KINDS


def default_kind(target: Target) -> str:
    """The default of ``--kl-loss-type``: k1, or kl in early revisions."""
    return next(kind for kind, name in kinds(target).items() if name == "k1")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per estimator, on the concatenated tokens of all samples, as in the loss."""
    arguments = {"log_probs": packed("logprob"), "log_probs_base": packed("ref_logprob"), "kl_loss_type": Knob("kind")}
    for kind, name in kinds(target).items():
        yield from bindable(
            target,
            one_call(
                path=PATH,
                stage="kl",
                call=PATH,
                name="kl",
                arguments=arguments,
                produced_by={"log_probs": "loss.py, policy_loss_function: log_probs and ref_log_probs concatenated"},
                outputs={"kl": Output("B T", "nats", f"kl.{name}", form=Packed())},
                settings={kind: {"kind": kind}},
                reach=f"--kl-loss-type {kind}",
            ),
        )
