"""slime's optimizer of a model with experts, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.chained_optimizers import boundaries
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PATH = "slime/backends/megatron_utils/model.py"

SETUP = """
    import dataclasses

    from megatron.core.enums import ModelType
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.training.training import get_model

    from .model_provider import get_model_provider_func

    def setup_model_and_optimizer(args, role="actor"):
        model = get_model(get_model_provider_func(args, role), ModelType.encoder_or_decoder)
        known = [field.name for field in dataclasses.fields(OptimizerConfig)]
        config = OptimizerConfig(**{name: getattr(args, name) for name in known})
        config.timers = None
        whole = get_megatron_optimizer(config, model, use_gloo_process_groups=args.enable_gloo_process_groups)
        for part in whole.chained_optimizers:
            part.init_state_fn(part.optimizer, part.config)
        return model, RETURNED, None
"""

FILES = {"slime/backends/megatron_utils/model_provider.py": "get_model_provider_func = None"}


@pytest.mark.parametrize("returned", ["whole", "part", "whole.chained_optimizers[0]"])
def test_weights_after_a_step(loads: Loads, returned: str) -> None:
    """All weights change, not only those of the last or the first of the optimizers."""
    target = loads(FRAMEWORK, {PATH: rewritten(SETUP, {"RETURNED": returned}), **FILES})
    bound = the_bound(boundaries(target))
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, "a model with experts", target, found=returned != "whole")


def test_a_revision_without_the_function(loads: Loads) -> None:
    assert list(boundaries(loads(FRAMEWORK, {PATH: "get_args = None", **FILES}))) == []


def test_a_revision_that_wraps_models_itself(loads: Loads) -> None:
    """Its models are wrapped between both steps, which this boundary does not do."""
    source = rewritten(SETUP, {"RETURNED": "whole"}).replace("config.timers = None", "config.ddp_config = None")
    assert list(boundaries(loads(FRAMEWORK, {PATH: source, **FILES}))) == []
