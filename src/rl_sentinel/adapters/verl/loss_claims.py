"""Claims about verl's policy losses: algorithms, knobs, definitions of logged metrics."""

from collections.abc import Mapping

from rl_sentinel.core.boundary import Output
from rl_sentinel.core.claims import Claims, claims

RATIO = claims(
    "core_algos.py, the loss's docstring: log-probabilities under the old policy and under the current one, whose "
    "exponentiated difference the code calls ratio",
    ratio=True,
)

_CHOICE = "core_algos.py, docstrings: clip_cov_ratio and kl_cov_ratio choose tokens by their covariance"

#: Registered name -> the algorithm that the docstring of the loss names.
ALGORITHMS: Mapping[str, Claims] = {
    name: claims(f"core_algos.compute_policy_loss_{name}, docstring: {words}", algorithm=algorithm)
    for name, algorithm, words in (
        ("vanilla", "dual clip", "the clipped objective of arXiv 1707.06347, dual-clip PPO of arXiv 1912.09729"),
        ("dppo_tv", "dppo tv", "DPPO-Binary-TV, arXiv 2602.04879"),
        ("dppo_kl", "dppo kl", "DPPO-Binary-KL, arXiv 2602.04879"),
        ("gspo", "gspo", "GSPO, arXiv 2507.18071"),
        ("sapo", "sapo", "SAPO, arXiv 2511.20347"),
        ("gpg", "reinforce", "policy gradient loss computed via GPG"),
        ("clip_cov", "clip-cov", "Clip-Cov, after PRIME-RL/Entropy-Mechanism-of-RL"),
        ("kl_cov", "kl-cov", "a KL penalty on the top-k covariance values, after PRIME-RL/Entropy-Mechanism-of-RL"),
        ("geo_mean", "gmpo", "GMPO, arXiv 2507.20673"),
        ("dro", "quadratic penalty", "Direct Reward Optimization with a quadratic log-ratio penalty"),
        ("cispo", "cispo", "CISPO, arXiv 2506.13585"),
    )
}

#: Registered name -> further claims; other losses are judged only by laws that need no claim.
CLAIMS: Mapping[str, Claims] = {
    "vanilla": RATIO,
    "gspo": RATIO,
    "sapo": RATIO,
    "cispo": RATIO,
    "dppo_tv": RATIO,
    "dppo_kl": RATIO,
    "geo_mean": RATIO
    | claims("compute_policy_loss_geo_mean, comment: advantages at the sequence level only", scope="sequence"),
    "clip_cov": claims(_CHOICE, on_policy_gradient="other", row_order=True),
    "kl_cov": claims(_CHOICE, on_policy_gradient="other", row_order=True),
}

#: Registered name -> documented settings, with two values that must give different losses.
KNOBS: Mapping[str, Claims] = {
    "vanilla": claims(
        "verl.readthedocs.io/en/latest/algo/ppo.html: actor.clip_ratio is the PPO clip range",
        knobs={"actor.clip_ratio": (0.1, 0.4)},
    ),
}

#: Logged name -> the quantity that its name promises; all are means over the response mask.
LOGGED: Mapping[str, Output] = {
    "actor/pg_clipfrac": Output("", "", "clip_fraction", over="live"),
    "actor/ppo_kl": Output("", "nats", "kl.k1", over="live"),
    "actor/pg_clipfrac_lower": Output("", "", "clip_fraction_lower", over="live"),
}

#: Exceptions by loss: a share of chosen tokens is not a mean; one loss logs the absolute value.
UNUSUAL: Mapping[str, Mapping[str, Output]] = {
    "clip_cov": {"actor/pg_clipfrac": Output("", "", "chosen")},
    "kl_cov": {"actor/ppo_kl": Output("", "nats", "kl.abs", over="live")},
}

PAIR = claims(
    "core_algos.py: ppo_kl is the mean of minus negative_approx_kl, which is log_prob minus old_log_prob",
    output_pairs={"actor/ppo_kl": "old_logprob against logprob"},
)

WEIGHTED = (
    "compute_rollout_correction_weights, docstring: a single threshold clamps the weights of training to rollout "
    "policy; core_algos.py, comment in each loss: rollout correction weights are applied where provided, those of "
    "geo_mean as their geometric mean over the sequence"
)
