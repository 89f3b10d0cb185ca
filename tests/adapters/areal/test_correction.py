"""What AReaL's rejection is passed and where its results are read, on a fake of it."""

import pytest
import torch

from adapters.areal_specimen import CONFIG
from adapters.checks import Loads, by_setting, check_verdict, outputs_of
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.arguments import rejection
from rl_sentinel.adapters.areal.correction import FAMILIES, PATH, boundaries
from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Inputs
from rl_sentinel.laws.differs_from_reference import LAW as REF001

#: It keeps ratios up to the bound, and writes into the mask that it is given, as the real one does.
FUNCTIONAL = """
    from dataclasses import dataclass
    import torch

    @dataclass
    class Kept:
        loss_mask: torch.Tensor
        behave_imp_weight: torch.Tensor

    def apply_rejection_sampling(proximal_logprobs, old_logprobs, loss_mask, cu_seqlens, config):
        weight = (proximal_logprobs - old_logprobs).exp()
        loss_mask &= weight <= config.upper
        return Kept(loss_mask, weight)
"""


def _files(config: str = CONFIG, functional: str = FUNCTIONAL) -> dict[str, str]:
    return {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": config,
        "areal/utils/functional.py": functional,
    }


def _batch() -> Batch:
    """Ratios of old policy to sampler 1, 4 and 4, of which the last does not train."""
    mask = torch.tensor([[True, True, False]])
    ratio = torch.tensor([[1.0, 4.0, 4.0]])
    return batch_of(mask, old_logprob=ratio.log() - 2, rollout_logprob=torch.full((1, 3), -2.0))


def _bound(target: Target) -> dict[str, Boundary]:
    found = list(boundaries(target))
    assert not [b for b in found if isinstance(b, Unbound)]
    return by_setting(found)


def test_only_trained_tokens_are_rejected(loads: Loads) -> None:
    """Weights of old policy and sampler; a token that never trained does not read as rejected; the batch stays."""
    target, batch = loads(FRAMEWORK, _files()), _batch()
    boundary = _bound(target)["token ratio"]
    outputs = outputs_of(target, boundary, "token ratio", batch)
    assert outputs["keep"].tolist() == [[1.0, 0.0, 1.0]]
    torch.testing.assert_close(outputs["weight"], torch.tensor([[1.0, 4.0, 4.0]]))
    assert batch.mask.tolist() == [[True, True, False]]
    assert boundary.reads == {"old_logprob", "rollout_logprob", "mask"}


@pytest.mark.parametrize("name", FAMILIES)
def test_scopes_are_those_of_the_setting(loads: Loads, name: str) -> None:
    """A decision at the level that is configured; weights of rows only where rows are weighed; a clamp keeps all."""
    found, settings = _bound(loads(FRAMEWORK, _files()))[name], FAMILIES[name]
    assert ("keep" in found.outputs) == ("clamp" not in name)
    if "keep" in found.outputs:
        assert found.outputs["keep"].scope == settings["level"]
    weighs_rows = settings["level"] == "sequence" and settings["metric"] == "ratio"
    assert found.outputs["weight"].scope == ("sequence" if weighs_rows else "token")
    assert f"actor.rejection_sampling.upper={settings['upper']}" in found.reach


BY_ROW = """
    from dataclasses import dataclass
    import torch

    @dataclass
    class Kept:
        loss_mask: torch.Tensor
        behave_imp_weight: torch.Tensor

    def apply_rejection_sampling(proximal_logprobs, old_logprobs, loss_mask, cu_seqlens, config):
        log_ratio, mask = proximal_logprobs - old_logprobs, loss_mask.bool()
        kept = torch.zeros_like(mask)
        for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist()):
            trained = mask[start:end]
            own = {"ratio": log_ratio, "kl_k1": log_ratio, "kl_k2": log_ratio**2 / 2}[config.metric][start:end][trained]
            greatest = own.max() if len(own) else own.sum()
            number = {"sum": own.sum(), "mean": own.sum() / COUNT, "max": greatest}[config.agg]
            number = number.exp() if config.metric == "ratio" else number
            inside = number <= config.upper and (config.lower is None or number >= config.lower)
            kept[start:end] = trained & inside
        return Kept(kept, log_ratio.exp())
"""


@pytest.mark.parametrize(("count", "found"), [("max(len(own), 1)", False), ("max(len(trained), 1)", True)])
def test_a_mean_over_all_tokens_decides_otherwise(loads: Loads, count: str, found: bool) -> None:
    """The divergence of a sequence is its mean over the trained tokens, by the formulas' names of the settings."""
    target = loads(FRAMEWORK, _files(functional=BY_ROW.replace("COUNT", count)))
    for name in ("sequence ratio, mean", "sequence k1, mean"):
        check_verdict(REF001, _bound(target)[name], name, target, found=found)
    for name in ("sequence ratio, sum", "sequence k2, max"):
        check_verdict(REF001, _bound(target)[name], name, target, found=False)


def test_the_configuration_is_the_targets_own(loads: Loads) -> None:
    """With the numbers of the setting, and the target's defaults for the rest."""
    target = loads(FRAMEWORK, _files())
    settings: Settings = {"level": "sequence", "upper": 2.0}
    config = evaluate(target, rejection(settings).put(Inputs(_batch(), settings)), StepResults())
    assert type(config).__module__ == "areal.api.cli_args"
    assert (config.level, config.upper, config.agg, config.lower) == ("sequence", 2.0, "mean", None)


def test_releases_before_it_have_none(loads: Loads) -> None:
    """Nothing is missed where nothing is configured; a configuration without its function is."""
    assert list(boundaries(loads(FRAMEWORK, _files(config="", functional="")))) == []


def test_a_configuration_without_its_function_is_missed(loads: Loads) -> None:
    """By the path that was expected."""
    (found,) = boundaries(loads(FRAMEWORK, _files(functional="")))
    assert isinstance(found, Unbound)
    assert (found.path, found.stage) == (PATH, "correct")
    assert "apply_rejection_sampling" in found.reason
