"""Advice for a finding: a remedy of the framework, or the correct function of the signal library."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from rl_sentinel.audit.findings import has_wrong_direction
from rl_sentinel.core.modules import defined
from rl_sentinel.remedies import remedy

#: Packages with one algorithm per module -> the function that computes it.
_ALGORITHMS = {"rl_sentinel.signal.advantage": "advantages", "rl_sentinel.signal.loss": "loss"}

#: Formula of logits -> the function of ``signal.logprob`` that computes it.
_OF_LOGITS = {
    "log-prob of the token": "logprobs",
    "entropy of the logits": "logprobs_and_entropy",
    "sum of squared probabilities": "squared_probabilities_from_hidden",
}

#: Stage -> the module that computes it correctly, used where no algorithm is claimed.
BY_STAGE = {
    "reward": "rl_sentinel.signal.reward",
    "normalize": "rl_sentinel.signal.normalization",
    "kl": "rl_sentinel.signal.kl",
    "correct": "rl_sentinel.signal.correction",
    "advantage": "rl_sentinel.signal.advantage",
    "policy-loss": "rl_sentinel.signal.loss",
    "value-loss": "rl_sentinel.signal.value",
    "aggregate": "rl_sentinel.signal.reduce",
    "metric": "rl_sentinel.signal.metrics",
}


_REFUSED = "accept these settings when the configuration is read"
_ACCEPTED = (
    "do not use these values: training starts without an error. In the code: refuse them when the configuration is read"
)

#: Law about a setting -> what to do with the setting, whatever the framework.
BY_SETTING = {
    "CFG001": "do not rely on this setting. In the code: use it, or refuse it when the configuration is read",
    "CFG004": "do not rely on this setting. In the code: pass its value on by keyword, under its own name",
    "CFG005": "select another value. In the code: implement this one, say in the exception what it needs, or remove it "
    "from the list",
    "CFG002": "do not compare runs with different values of this setting. In the code: divide by counts of the whole "
    "mini-batch, not of the parts that the setting creates",
    "ONP002": "set a clip range with 1 between its bounds. Check whether the loss takes bounds, or offsets from 1",
}

#: Law -> the change that removes the cause, for every stage.
BY_LAW = {
    "STA001": "count admitted samples separately from dropped samples, and restore the count",
    "MET005": "add up sums and counts over micro-batches and ranks, and divide once",
    "MSK005": "leave rows without a trained token out of the sum and of the count",
    "PAR001": "use one of the two implementations everywhere: they are not interchangeable",
    "RAI001": "handle this batch, or refuse it where it is created",
    "RES001": "save and restore all of the state: weights, data order, random states, counters",
    "PLC005": "put the outcome at the last trained token of each step: rl_sentinel.signal.align.at_last, "
    "rl_sentinel.signal.steps",
    "TOK001": "take the tokens of the whole conversation from its chat template, then cut and mask them",
}


def general_advice(evidence: Mapping[str, Any]) -> str:
    """``advice`` for an issue of the framework: the part after ``In the code:`` if it has one, else all of it.

    Empty if the advice mentions this package.
    """
    clause = advice(evidence)
    _, _, in_code = clause.rpartition("In the code: ")
    return "" if "rl_sentinel" in clause else in_code


def advice(evidence: Mapping[str, Any]) -> str:
    """One clause that says what to do; empty if there is no recommendation."""
    expectation, law = evidence["expectation"], str(evidence["law"])
    if expectation["kind"] == "Refuses":
        return _REFUSED if expectation["accepts"] else _ACCEPTED
    if law in BY_SETTING:
        return BY_SETTING[law]
    if steps := remedy(str(evidence["target"]["framework"]), str(evidence["reach"])):
        return steps
    if has_wrong_direction(evidence):  # the outcome arrives, so it is at the right place
        return _with_signal(evidence)
    return BY_LAW.get(law) or _with_signal(evidence)


def _with_signal(evidence: Mapping[str, Any]) -> str:
    """The function of the signal library that computes the output; if it is not known, the module; may be empty."""
    claims = evidence["claims"]
    claim = claims.get(f"algorithm:{evidence['expectation']['output']}") or claims.get("algorithm")
    function = _functions().get(claim["value"]) if claim else None
    if function:
        return f"compute it with {function}"
    module = BY_STAGE.get(str(evidence["stage"]))
    return f"compute it with a function of {module}" if module else ""


@cache
def _functions() -> dict[str, str]:
    """Algorithm or formula of logits -> the function of the signal library that computes it."""
    functions = {}
    for package, function in _ALGORITHMS.items():
        for module, claims in defined(import_module(package), "CLAIMS").items():
            functions[claims.get("algorithm", "")] = f"{package}.{module}.{function}"
    return functions | {formula: f"rl_sentinel.signal.logprob.{function}" for formula, function in _OF_LOGITS.items()}
