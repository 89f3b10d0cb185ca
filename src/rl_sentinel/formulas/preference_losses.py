"""Losses on pairs of a preferred and a rejected response, as their papers write them, with a gradient."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.preference_pairs import TIE, Pairs, are_pairs, mismatched_kl, number, pairs_of

#: Name of a reading (an accepted interpretation of the formula) -> its value.
Named = dict[str, Tensor]


def _score(log_ratio: Tensor, settings: Settings) -> Named:
    """The derivative of the f-divergence's function f at the ratio, up to a constant; f-DPO, arXiv 2309.16240, table 2.

    The power of the alpha-divergence is minus alpha in the paper, and alpha minus 1 in some implementations.
    """
    kind, alpha = settings.get("divergence", "reverse_kl"), number(settings, "divergence_alpha", 1.0)
    if kind == "forward_kl":
        return {"": 1 - torch.exp(-log_ratio)}
    if kind == "js_divergence":
        return {"": torch.log(torch.tensor(2.0)).double() - torch.log1p(torch.exp(-log_ratio))}
    if kind == "alpha_divergence":
        powers = {"power of minus alpha": -alpha, "power of alpha minus 1": alpha - 1}
        return {n: (torch.exp(p * log_ratio) - 1) / p if p else log_ratio for n, p in powers.items()}
    return {"": log_ratio}


def _differences(pairs: Pairs, settings: Settings, *, by_length: bool = False) -> Named:
    """Score of the preferred response minus score of the rejected response, by reading."""
    chosen, rejected = _score(pairs.chosen_ratio, settings), _score(pairs.rejected_ratio, settings)
    if by_length:
        return {n: chosen[n] / pairs.chosen_length - rejected[n] / pairs.rejected_length for n in chosen}
    return {n: chosen[n] - rejected[n] for n in chosen}


def _cross_entropy(x: Tensor, smoothing: float) -> Tensor:
    return -logsigmoid(x) * (1 - smoothing) - logsigmoid(-x) * smoothing


def _of_difference(loss: Callable[[Tensor, float, float], Tensor], *, by_length: bool = False) -> "Loss":
    """Make a loss from a function of the score difference, the KL coefficient and the share of flipped labels."""

    def losses(pairs: Pairs, settings: Settings) -> Named:
        beta, flipped = number(settings, "beta"), number(settings, "label_smoothing")
        return {n: loss(d, beta, flipped) for n, d in _differences(pairs, settings, by_length=by_length).items()}

    return losses


def _exo(d: Tensor, beta: float, flipped: float) -> Tensor:
    up, down = logsigmoid(beta * d), logsigmoid(-beta * d)
    share = torch.tensor([1 - flipped, flipped], dtype=torch.float64).log()
    return up.exp() * (up - share[0]) + down.exp() * (down - share[1])


def _robust(d: Tensor, beta: float, flipped: float) -> Tensor:
    return (-(1 - flipped) * logsigmoid(beta * d) + flipped * logsigmoid(-beta * d)) / (1 - 2 * flipped)


def _of_ratios(loss: Callable[[Tensor, Tensor, float, Settings], Tensor]) -> "Loss":
    """Make a loss from a function of both log-ratios, the KL coefficient and the settings."""
    return lambda pairs, settings: {
        "": loss(pairs.chosen_ratio, pairs.rejected_ratio, number(settings, "beta"), settings)
    }


def _nca(w: Tensor, r: Tensor, beta: float, _settings: Settings) -> Tensor:
    return -logsigmoid(beta * w) - 0.5 * logsigmoid(-beta * w) - 0.5 * logsigmoid(-beta * r)


def _sppo(w: Tensor, r: Tensor, beta: float, _settings: Settings) -> Tensor:
    return (w - 0.5 / beta) ** 2 + (r + 0.5 / beta) ** 2


def _apo_zero(w: Tensor, r: Tensor, beta: float, _settings: Settings) -> Tensor:
    return 1 - torch.sigmoid(beta * w) + torch.sigmoid(beta * r)


def _apo_down(w: Tensor, r: Tensor, beta: float, _settings: Settings) -> Tensor:
    return torch.sigmoid(beta * w) + 1 - torch.sigmoid(beta * (w - r))


def _discovered(d: Tensor, beta: float, settings: Settings) -> Tensor:
    share = torch.sigmoid(beta * d / number(settings, "tau", 0.05))
    return (1 - share) * -logsigmoid(beta * d) + share * torch.exp(-beta * d)


def _aot(first: Tensor, second: Tensor, settings: Settings) -> Named:
    """AOT (arXiv 2406.05882): sort both lists, then pair them; empty if a tie leaves the order open."""
    one, other = first.sort().values, second.sort().values
    if bool((torch.cat([one.diff(), other.diff()]) < TIE).any()):
        return {}
    return {"": _cross_entropy(number(settings, "beta") * (one - other), number(settings, "label_smoothing"))}


def _simpo(pairs: Pairs, settings: Settings) -> Named:
    beta, margin = number(settings, "beta"), number(settings, "margin")
    gap = pairs.chosen / pairs.chosen_length - pairs.rejected / pairs.rejected_length
    return {"": _cross_entropy(beta * gap - margin, number(settings, "label_smoothing"))}


def _xpo(pairs: Pairs, settings: Settings) -> Named:
    """DPO plus the weighted log-prob of the reference's response; XPO (arXiv 2405.21046), algorithm 1."""
    explored = pairs.chosen if settings.get("reference_wins") else pairs.rejected
    term = number(settings, "optimism") * explored
    return {n: -logsigmoid(number(settings, "beta") * d) + term for n, d in _differences(pairs, settings).items()}


def _orpo(pairs: Pairs, settings: Settings) -> Named:
    """The weighted odds ratio of mean log-probs; ORPO (arXiv 2403.07691), equations 4 and 7."""
    chosen, rejected = pairs.chosen / pairs.chosen_length, pairs.rejected / pairs.rejected_length
    odds = chosen - rejected - torch.log(-torch.expm1(chosen)) + torch.log(-torch.expm1(rejected))
    return {"": -number(settings, "beta") * logsigmoid(odds)}


def _pair_loss(chosen: Tensor, rejected: Tensor, settings: Settings) -> Named:
    """Half the weighted sum of both losses, so that a mean over rows becomes a mean over pairs."""
    first, other = number(settings, "desirable_weight", 1.0), number(settings, "undesirable_weight", 1.0)
    return {"": (first * chosen + other * rejected) / 2}


def _kto(pairs: Pairs, settings: Settings) -> Named:
    beta, kl = number(settings, "beta"), mismatched_kl(pairs)
    gains = torch.sigmoid(beta * (pairs.chosen_ratio - kl)), torch.sigmoid(beta * (kl - pairs.rejected_ratio))
    return _pair_loss(1 - gains[0], 1 - gains[1], settings)


def _apo_zero_unpaired(pairs: Pairs, settings: Settings) -> Named:
    beta = number(settings, "beta")
    return _pair_loss(
        1 - torch.sigmoid(beta * pairs.chosen_ratio), torch.sigmoid(beta * pairs.rejected_ratio), settings
    )


def _bradley_terry(pairs: Pairs, settings: Settings) -> Named:
    """The loss of a reward model that scores a response by its log-prob, plus the squared sum of the scores of a pair.

    Source:
        InstructGPT (arXiv 2203.02155), equation 1; the sum with weight ``centering``: arXiv 2312.09244, section 3.
    """
    around = number(settings, "centering") * (pairs.chosen + pairs.rejected) ** 2
    return {"": -logsigmoid(pairs.chosen - pairs.rejected) + around}


Loss = Callable[[Pairs, Settings], Named]

#: Algorithm -> loss of each pair, ``[n]``, by reading.
LOSSES: Mapping[str, Loss] = {
    "dpo": _of_difference(lambda d, beta, e: _cross_entropy(beta * d, e)),  # arXiv 2305.18290, equation 7
    "dpo of means": _of_difference(lambda d, beta, e: _cross_entropy(beta * d, e), by_length=True),
    "cpo": _of_difference(lambda d, beta, e: _cross_entropy(beta * d, e)),  # arXiv 2401.08417, equation 3
    "slic": _of_difference(lambda d, beta, _e: torch.relu(1 - beta * d)),  # arXiv 2305.10425
    "ipo": _of_difference(lambda d, beta, _e: (d - 1 / (2 * beta)) ** 2),  # arXiv 2310.12036, equation 17
    "ipo of means": _of_difference(lambda d, beta, _e: (d - 1 / (2 * beta)) ** 2, by_length=True),
    "exo": _of_difference(_exo),  # arXiv 2402.00856, equation 16
    "robust dpo": _of_difference(_robust),  # arXiv 2403.00409
    "nca": _of_ratios(_nca),  # arXiv 2402.05369
    "sppo": _of_ratios(_sppo),  # arXiv 2405.00675
    "apo zero": _of_ratios(_apo_zero),  # arXiv 2408.06266, equation 7
    "apo down": _of_ratios(_apo_down),  # arXiv 2408.06266, equation 8
    "discopop": lambda pairs, settings: {
        n: _discovered(d, number(settings, "beta"), settings) for n, d in _differences(pairs, settings).items()
    },
    "aot": lambda pairs, s: _aot(pairs.chosen - pairs.rejected, pairs.ref_chosen - pairs.ref_rejected, s),
    "aot unpaired": lambda pairs, s: _aot(pairs.chosen_ratio, pairs.rejected_ratio, s),
    "bradley-terry": _bradley_terry,
    "simpo": _simpo,  # arXiv 2405.14734
    "orpo": _orpo,
    "xpo": _xpo,
    "kto": _kto,  # arXiv 2402.01306
    "apo zero unpaired": _apo_zero_unpaired,  # arXiv 2408.06266
    "likelihood of the preferred": lambda pairs, _settings: {"": -pairs.chosen / pairs.chosen_length.sum()},
}

#: Algorithms without a reference policy; its log-probs count as 0.
WITHOUT_REFERENCE = frozenset({"bradley-terry", "simpo", "cpo", "orpo", "likelihood of the preferred"})


def preference_loss(algorithm: str, batch: Batch, settings: Settings) -> Named:
    """The loss of the batch under each reading of the paper; empty if rows are not pairs, or a tie leaves it open.

    Each loss is a mean over pairs, except ``likelihood of the preferred``, which is a sum.

    ``likelihood_weight`` adds the mean negative log-likelihood of the tokens of preferred responses by that weight,
    as CPO (arXiv 2401.08417) and RPO (arXiv 2404.19733) do. ORPO (arXiv 2403.07691) counts the prompt too: the mean is
    also over ``prompt_tokens`` tokens per preferred response, each with the log-prob ``prompt_logprob``.

    Example:
        >>> from rl_sentinel.core.batch import batch_of
        >>> batch = batch_of(torch.ones(2, 1).bool(), logprob=torch.tensor([[-1.0], [-3.0]]))
        >>> preference_loss("ipo", batch, {"beta": 0.5})
        {'of both policies': tensor(1., dtype=torch.float64)}
    """
    if not are_pairs(batch):
        return {}
    found: Named = {}
    reference = algorithm not in WITHOUT_REFERENCE and settings.get("reference") is not False
    sides = {"of both policies": True} | ({"of the policy": False} if settings.get("tail_weight") is not None else {})
    for side, desensitized in sides.items():
        pairs = pairs_of(batch, settings, reference=reference, desensitized=desensitized)
        for reading, loss in LOSSES[algorithm](pairs, settings).items():
            name = ", ".join(filter(None, (reading, side)))
            total = loss.sum() if algorithm == "likelihood of the preferred" else loss.mean()
            found |= {f"{name}{n}": x for n, x in _with_likelihood(total, batch, settings).items()}
    return found


def _with_likelihood(loss: Tensor, batch: Batch, settings: Settings) -> Named:
    weight = settings.get("likelihood_weight")
    if weight is None:
        return {"": loss}
    tokens = batch.logprob[::2].double()[batch.mask[::2]]
    asked = number(settings, "prompt_tokens") * (batch.rows // 2)
    total = tokens.sum() + asked * number(settings, "prompt_logprob")
    return {"": loss - float(weight) * total / (len(tokens) + asked)}
