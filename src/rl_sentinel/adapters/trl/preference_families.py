"""TRL's preference losses (DPO, CPO, ORPO, TPO, KTO): settings, and claims from the documentation."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from rl_sentinel.adapters.trl.token_model import ELSEWHERE
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: Neutral name of a setting -> its field in the configuration, if the names differ.
FIELDS: Mapping[str, str] = {
    "divergence": "f_divergence_type",
    "divergence_alpha": "f_alpha_divergence_coef",
    "tau": "discopop_tau",
    "tail_weight": "ld_alpha",
    "likelihood_weight": "rpo_alpha",
    "margin": "simpo_gamma",
    "cpo_likelihood_weight": "cpo_alpha",
    "tpo_likelihood_weight": "tpo_alpha",
    "tpo_margin": "tpo_l_gamma",
}

_DOC = "dpo_config.py, DPOConfig, docstring of {}"


def _loss(name: str, algorithm: str, doc: str = _DOC) -> Claims:
    return claims(doc.format(f"loss_type {name!r}"), algorithm=algorithm)


@dataclass(frozen=True)
class Family:
    """A loss under some settings, and its claims.

    Attributes:
        described: settings that only formulas read.
        sorts: whether the loss depends on the composition of a micro-batch.
        rewards: whether the logged rewards are the implicit rewards of the policy.
        truncated: whether the loss is also bound with truncated sequences.
        prompts: number of lengths of prompts.
        shortest: number of tokens of the shortest prompt.
        needs: text that the source of a release must contain.
        lacks: text that the source of a release must not contain.
    """

    settings: Settings
    claims: Claims = field(default_factory=Claims)
    described: frozenset[str] = frozenset()
    sorts: bool = False
    rewards: bool = True
    truncated: bool = False
    prompts: int = 2
    shortest: int = 1
    needs: str = ""
    lacks: str = ""

    def fits(self, known: Mapping[str, Any], source: str) -> bool:
        """Whether a release has the family.

        Its configuration, with the fields ``known``, must have each setting that is not in ``described``. Its source
        must have the loss type and the text ``needs``, and not the text ``lacks``.
        """
        fields = {FIELDS.get(n, n) for n in self.settings if n not in self.described}
        kind = self.settings.get("loss_type")
        named = not kind or f'"{kind}"' in source
        return fields <= set(known) and named and self.needs in source and not (self.lacks and self.lacks in source)

    def place(self, config_field: Any) -> str:  # noqa: ANN401 - a field of a configuration
        """The path from a field to its plain value: ``.value`` for an enum, ``.0`` for a list, else empty."""
        if isinstance(config_field.default, Enum):
            return ".value"
        factory = config_field.default_factory
        return ".0" if factory is not dataclasses.MISSING and isinstance(factory(), list) else ""

    def logs(self, name: str, source: str) -> bool:
        """Whether the source logs a metric of this name and the metric is the claimed quantity."""
        return self.rewards and f'{name}"' in source


_BETA: Settings = {"beta": 0.5}
_MEANS = claims(
    "dpo_trainer.py, loss_type 'ipo': log-probs are averaged over the completion's tokens; IPO's authors confirmed it",
    algorithm="ipo of means",
)
_NO_REFERENCE = frozenset({"reference"})


def _of(name: str, algorithm: str, **settings: float) -> Family:
    return Family({"loss_type": name, **_BETA, **settings}, _loss(name, algorithm))


def _sorted(name: str, algorithm: str) -> Family:
    ties = claims("dpo_trainer.py, torch.sort: the order of rows decides between equal ratios", row_order=True)
    return Family({"loss_type": name, **_BETA}, _loss(name, algorithm) | ties, sorts=True)


def _divergence(kind: str, **settings: float) -> Family:
    cite = claims("dpo_config.py, f_divergence_type: the divergence between policy and reference", algorithm="dpo")
    return Family({**_BETA, "divergence": kind, **settings}, cite, rewards=False)


def _with_likelihood(weight: float) -> Family:
    cite = "dpo_config.py, rpo_alpha: weight of the negative log-likelihood of the chosen responses; the paper has 1"
    return Family({**_BETA, "likelihood_weight": weight}, claims(cite, algorithm="dpo"), sorts=True)


DPO_FAMILIES: Mapping[str, Family] = {
    "default": Family(_BETA, _loss("sigmoid", "dpo"), truncated=True),
    "smoothed": Family(
        {**_BETA, "label_smoothing": 0.1},
        _loss("sigmoid", "dpo"),
        needs="-F.logsigmoid(-self.beta * logits) * self.label_smoothing",
    ),
    "hinge": _of("hinge", "slic"),
    "ipo": Family({"loss_type": "ipo", **_BETA}, _MEANS, rewards=False, truncated=True),
    "exo_pair": _of("exo_pair", "exo", label_smoothing=0.1),
    "nca_pair": _of("nca_pair", "nca"),
    "robust": _of("robust", "robust dpo", label_smoothing=0.1),
    "bco_pair": Family({"loss_type": "bco_pair", **_BETA}, claims("running mean of rewards", state=True), sorts=True),
    "sppo": _of("sppo", "sppo"),
    "sppo_hard": _of("sppo_hard", "sppo"),
    "aot": _sorted("aot", "aot"),
    "aot_pair": _sorted("aot_pair", "aot unpaired"),
    "aot_unpaired": _sorted("aot_unpaired", "aot unpaired"),
    "apo_zero": _of("apo_zero", "apo zero"),
    "apo_down": _of("apo_down", "apo down"),
    "discopop": _of("discopop", "discopop", tau=0.05),
    "sigmoid_norm": Family(
        {"loss_type": "sigmoid_norm", **_BETA}, _loss("sigmoid_norm", "dpo of means"), truncated=True
    ),
    "sft": Family(
        {"loss_type": "sft", **_BETA},
        _loss("sft", "likelihood of the preferred"),
        sorts=True,
    ),
    "js_divergence": _divergence("js_divergence"),
    "alpha_divergence": replace(
        _divergence("alpha_divergence", divergence_alpha=1.0),
        described=frozenset({"divergence_alpha"}),
        lacks="f_alpha_divergence_coef",
    ),
    "alpha_divergence, half": _divergence("alpha_divergence", divergence_alpha=0.5),
    "forward_kl": Family(
        {**_BETA, "divergence": "forward_kl"},
        claims("dpo_config.py, f_divergence_type", algorithm="dpo"),
        rewards=False,
        needs='"forward_kl"',
    ),
    "rpo": _with_likelihood(0.5),
    "rpo, weight 1": _with_likelihood(1.0),
    "length-desensitized": Family(
        {**_BETA, "tail_weight": 0.25},
        claims("dpo_config.py, ld_alpha: weight of log-probs beyond the shorter response, LD-DPO", algorithm="dpo"),
        rewards=False,
    ),
    "reference-free": Family(
        {**_BETA, "reference_free": True, "reference": False},
        claims("dpo_config.py, reference_free: a uniform reference", algorithm="dpo"),
        described=_NO_REFERENCE,
        rewards=False,
    ),
    "padding-free": Family(
        {**_BETA, "padding_free": True},
        _loss("sigmoid", "dpo"),
        needs="position_ids",
    ),
}

_CPO = "cpo_config.py, CPOConfig, docstring of {}"


def _without_reference(name: str, algorithm: str, **settings: float) -> Family:
    plain: Settings = {"loss_type": name, **_BETA, **settings, "cpo_likelihood_weight": 0.0, "reference": False}
    return Family(plain, _loss(name, algorithm, _CPO), described=_NO_REFERENCE, rewards=name == "sigmoid")


CPO_FAMILIES: Mapping[str, Family] = {
    "default": Family(
        {**_BETA, "cpo_likelihood_weight": 0.5, "likelihood_weight": 0.5, "reference": False},
        claims("cpo_config.py: the sigmoid loss and cpo_alpha times the likelihood of the chosen", algorithm="cpo"),
        described=frozenset({"reference", "likelihood_weight"}),
        sorts=True,
    ),
    "sigmoid": _without_reference("sigmoid", "cpo"),
    "smoothed": _without_reference("sigmoid", "cpo", label_smoothing=0.1),
    "hinge": _without_reference("hinge", "slic"),
    "ipo": _without_reference("ipo", "ipo of means"),
    "simpo": _without_reference("simpo", "simpo", margin=0.25),
}

_ORPO = Family(
    {**_BETA, "likelihood_weight": 1.0, "reference": False},
    claims(
        "orpo_trainer.py, odds_ratio_loss: equations 4 and 7 of arXiv 2403.07691, and the likelihood of prompt and "
        "chosen response; a first token is not predicted",
        algorithm="orpo",
    ),
    described=frozenset({"reference", "likelihood_weight"}),
    sorts=True,
    rewards=False,
    prompts=1,
)

#: Tokens of a prompt that are predicted, and their log-prob.
_ASKED: Settings = {"prompt_tokens": 2, "prompt_logprob": ELSEWHERE}

ORPO_FAMILIES: Mapping[str, Family] = {
    "default": _ORPO,
    "prompts of several tokens": dataclasses.replace(
        _ORPO, settings={**_ORPO.settings, **_ASKED}, described=_ORPO.described | set(_ASKED), shortest=3
    ),
}

_TPO = "tpo_config.py, TPOConfig, docstring of loss_type: {}"
_PAIRS_ALONE: Settings = {**_BETA, "tpo_likelihood_weight": 0.0, "reference": False}

#: Losses without the third response, except the first loss, where the third response equals the preferred one.
TPO_FAMILIES: Mapping[str, Family] = {
    "default": Family(
        {**_BETA, "tpo_likelihood_weight": 0.5, "likelihood_weight": 0.5, "reference": False},
        claims("tpo_config.py, tpo_alpha: weight of the likelihood of the gold response", algorithm="cpo"),
        described=frozenset({"reference", "likelihood_weight"}),
        sorts=True,
    ),
    "smoothed": Family(
        {**_PAIRS_ALONE, "loss_type": "sigmoid", "label_smoothing": 0.1},
        _loss("sigmoid", "cpo", _TPO),
        described=_NO_REFERENCE,
        truncated=True,
    ),
    "ipo": Family(
        {**_PAIRS_ALONE, "loss_type": "ipo"},
        _loss("ipo", "ipo of means", _TPO),
        described=_NO_REFERENCE,
        rewards=False,  # of mean log-probs, like the loss
    ),
    "tpo-l": Family(
        {**_PAIRS_ALONE, "loss_type": "tpo-l", "tpo_margin": 0.25, "margin": 0.25},
        claims(_TPO.format("'tpo-l' subtracts a target margin of mean log-probs"), algorithm="simpo"),
        described=_NO_REFERENCE | {"margin"},
        rewards=False,
    ),
}

_WEIGHTS: Settings = {**_BETA, "desirable_weight": 1.5, "undesirable_weight": 0.75}

KTO_FAMILIES: Mapping[str, Family] = {
    "default": Family(
        _BETA,
        claims("kto_trainer.py, loss_type 'kto': equation 7 of arXiv 2402.01306", algorithm="kto"),
        sorts=True,
    ),
    "weighted": Family(
        _WEIGHTS,
        claims("kto_config.py, desirable_weight, undesirable_weight: factors of the losses", algorithm="kto"),
        sorts=True,
    ),
    "apo_zero_unpaired": Family(
        {"loss_type": "apo_zero_unpaired", **_WEIGHTS},
        claims("kto_config.py, loss_type 'apo_zero_unpaired': unpaired loss of APO", algorithm="apo zero unpaired"),
    ),
}
