"""The options of the engines that TRL starts, on a specimen of their call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, by_setting, outputs_of, rewritten, settings_found
from adapters.kit.round_trip import check_calls
from adapters.trl_engines_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK
from rl_sentinel.adapters.trl.engine_options import boundaries
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

SERVE = """
    from dataclasses import dataclass, fields

    @dataclass
    class ScriptArguments:
        model: str
        max_model_len: int = 8
        dtype: str = "auto"
        enable_prefix_caching: bool = True
        vllm_model_impl: str = "vllm"

    class Parser:
        def parse_args_and_config(self, words):
            texts = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2]))
            make = {bool: lambda text: text == "True"}
            types = {field.name: make.get(field.type, field.type) for field in fields(ScriptArguments)}
            return (ScriptArguments(**{name: types[name](text) for name, text in texts.items()}),)

    make_parser = Parser

    def llm_worker(script_args, data_parallel_rank, master_port, connection):
        from vllm import LLM

        engine = LLM(
            model=script_args.model,
            max_model_len=script_args.max_model_len,
            dtype=script_args.dtype,
            enable_prefix_caching=CACHING,
            model_impl=IMPLEMENTATION,
        )
        connection.send({"status": "ready"})
        while connection.recv()["type"] != "shutdown":
            pass
"""

SOUND = {
    "CACHING": "script_args.enable_prefix_caching",
    "IMPLEMENTATION": "script_args.vllm_model_impl",
}

FIELDS = """
        vllm_max_model_length: int = None
        vllm_enable_sleep_mode: bool = False
"""


def _bound(
    loads: Loads, own: str = "length", asleep: str = "asleep", **broken: str
) -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    place = "trl/generation/vllm_generation.py"
    tree[place] = (
        tree[place]
        .replace("limit, others):", "limit, others, length=None, asleep=False):")
        .replace("self._init_vllm()", "self._init_vllm(length, asleep)")
        .replace("def _init_vllm(self):", "def _init_vllm(self, length, asleep):")
        .replace(
            'raise RuntimeError("an engine starts here")',
            f'self.llm = LLM(model="tiny", max_model_len={own}, enable_sleep_mode={asleep})',
        )
    )
    tree["trl/trainer/grpo_trainer.py"] = tree["trl/trainer/grpo_trainer.py"].replace(
        "others=args.generation_kwargs,",
        "others=args.generation_kwargs, length=args.vllm_max_model_length, asleep=args.vllm_enable_sleep_mode,",
    )
    tree["trl/trainer/grpo_config.py"] += FIELDS.lstrip("\n")
    tree |= {"trl/scripts/__init__.py": "", "trl/scripts/vllm_serve.py": rewritten(SERVE, SOUND | broken)}
    target = loads(FRAMEWORK, tree, overlay())
    return target, by_setting(boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, found = _bound(loads)
    kinds = ("values", "flags that are on", "flags that are off")
    assert list(found) == [f"{where}, {kind}" for where in ("server", "colocate") for kind in kinds]
    check_calls(target, found.values())


def test_by_hand(loads: Loads) -> None:
    """Numbers and texts arrive; a flag that is None is vLLM's."""
    target, found = _bound(loads, CACHING="None")
    one = batch_of(torch.ones(1, 1, dtype=torch.bool))
    by_name = {
        name: {option: value.item() for option, value in outputs_of(target, boundary, name, one).items()}
        for name, boundary in found.items()
    }
    assert by_name["server, values"] == {"max_model_len": 96.0, "dtype": 1.0, "model_impl": 1.0}
    assert by_name["server, flags that are off"] == {"enable_prefix_caching": 1.0}
    assert by_name["colocate, values"] == {"max_model_len": 96.0}
    assert by_name["colocate, flags that are on"] == {"enable_sleep_mode": 1.0}


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"CACHING": "script_args.enable_prefix_caching or None"}, {"server, flags that are off"}),
        ({"IMPLEMENTATION": "'auto'"}, {"server, values"}),
        ({"own": "None"}, {"colocate, values"}),
        ({"asleep": "True"}, {"colocate, flags that are off"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """A flag that cannot be turned off, and options that are left out or fixed."""
    target, found = _bound(loads, **broken)
    assert settings_found(CFG004, found, target) == where


COMMAND = """
    def build_command(script_args, extra_args=None):
        command = ["python", "-m", "vllm", "serve", script_args.model, "--dtype", script_args.dtype]
        command += ["--max-model-len", str(script_args.max_model_len), "--model-impl", script_args.vllm_model_impl]
        if script_args.enable_prefix_caching is not None:
            command += ["--enable-prefix-caching" if script_args.enable_prefix_caching else OFF]
        return command
"""


@pytest.mark.parametrize("off", ["--no-enable-prefix-caching", "--enforce-eager"])
def test_command_of_vllm(loads: Loads, off: str) -> None:
    """A flag that is on by default is turned off by its opposite only."""
    serve = SERVE.partition("    def llm_worker")[0] + COMMAND.replace("OFF", repr(off))
    tree = {**files(), "trl/scripts/__init__.py": "", "trl/scripts/vllm_serve.py": serve}
    target = loads(FRAMEWORK, tree, overlay())
    found = {name: one for name, one in by_setting(boundaries(target)).items() if name.startswith("server")}
    assert len(found) == 3
    check_calls(target, found.values())
    assert settings_found(CFG004, found, target) == (
        set() if off.startswith("--no") else {"server, flags that are off"}
    )
