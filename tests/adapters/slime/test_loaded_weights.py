"""slime's loading of a folder in the format of transformers, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.loaded_weights import boundaries
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PATH = "slime/backends/megatron_utils/checkpoint.py"

HEAD = """
    from pathlib import Path

    from megatron.training.global_vars import get_args
    from slime.utils import megatron_bridge_utils

    def load_checkpoint(model, optimizer, schedule, checkpointing_context, skip_load_to_model_and_opt):
        args = get_args()
        assert any(Path(args.load).iterdir())
        return _load_checkpoint_hf(model, optimizer, args, args.load)
"""

BRIDGE = """
    def _load_checkpoint_hf(model, optimizer, args, path):
        from megatron.bridge import AutoBridge

        import slime_plugins.megatron_bridge

        with megatron_bridge_utils.patch_megatron_model(model):
            AutoBridge.from_hf_pretrained(FOLDER, trust_remote_code=True).load_hf_weights(model)
        if args.bf16 and optimizer is not None:
            COPY
        return 0, 0
"""

OWN = """
    def _load_checkpoint_hf(model, optimizer, args, path):
        from slime.backends.megatron_utils.hf_to_megatron import load_hf_weights

        load_hf_weights(args, model, FOLDER)
        if args.bf16 and optimizer is not None:
            COPY
        return 0, 0
"""

SOUND = {"FOLDER": "path", "COPY": "optimizer.reload_model_params()"}
FILES = {"slime/utils/megatron_bridge_utils.py": "patch_megatron_model = None"}


@pytest.mark.parametrize("reads", [BRIDGE, OWN], ids=["bridge", "own"])
@pytest.mark.parametrize(
    "broken",
    [{}, {"FOLDER": "args.hf_checkpoint"}, {"COPY": "pass"}],
    ids=["sound", "another folder", "the optimizer keeps its copies"],
)
def test_weights_that_are_loaded(loads: Loads, reads: str, broken: dict[str, str]) -> None:
    target = loads(FRAMEWORK, {PATH: rewritten(HEAD + reads, SOUND | broken), **FILES})
    bound = the_bound(boundaries(target))
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, "transformers folder", target, found=bool(broken))


def test_bridge_among_the_options(loads: Loads) -> None:
    """A bridge that was made from the folder of the configuration loads the weights of that folder."""
    made = "AutoBridge.from_hf_pretrained(FOLDER, trust_remote_code=True)"
    reads = rewritten(BRIDGE, {made: "args.bridge", "COPY": SOUND["COPY"]})
    bound = the_bound(boundaries(target := loads(FRAMEWORK, {PATH: HEAD + reads, **FILES})))
    check_verdict(PLC004, bound, "transformers folder", target, found=True)


CHOICE = """
    from megatron.training.checkpointing import load_checkpoint as _load_checkpoint_megatron
    from megatron.training.global_vars import get_args
    from pathlib import Path
    from slime.utils import megatron_bridge_utils
    from transformers import AutoConfig

    def of_transformers(path):
        try:
            AutoConfig.from_pretrained(path)
        except (ValueError, OSError):
            return False
        return True

    def load_checkpoint(ddp_model, optimizer, opt_param_scheduler, checkpointing_context, skip_load_to_model_and_opt):
        args = get_args()
        if CHOSEN:
            return _load_checkpoint_hf(ddp_model, optimizer, args, args.load)
        return _load_checkpoint_megatron(ddp_model=ddp_model, optimizer=optimizer)
"""


@pytest.mark.parametrize("own_code", [False, True])
@pytest.mark.parametrize(
    ("chosen", "reads_code"),
    [
        ("of_transformers(args.load)", True),
        ("not Path(args.load, 'latest_checkpointed_iteration.txt').is_file()", False),
    ],
    ids=["by its configuration", "by Megatron's file"],
)
def test_how_the_format_is_recognized(loads: Loads, chosen: str, *, reads_code: bool, own_code: bool) -> None:
    """A configuration with code of its own is not read, and Megatron then leaves the model as it is."""
    target = loads(FRAMEWORK, {PATH: rewritten(CHOICE + BRIDGE, {**SOUND, "CHOSEN": chosen}), **FILES})
    setting = f"transformers folder{', code of its own' if own_code else ''}"
    check_verdict(PLC004, the_bound(boundaries(target)), setting, target, found=reads_code and own_code)


def test_a_revision_that_loads_no_such_folder(loads: Loads) -> None:
    assert list(boundaries(loads(FRAMEWORK, {PATH: HEAD, **FILES}))) == []
