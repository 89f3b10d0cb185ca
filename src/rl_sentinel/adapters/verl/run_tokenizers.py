"""The tokenizer with which verl's trainer makes prompts: it must be the one that the model's configuration sets."""

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec

OWNER = "verl.trainer.ppo.v1.trainer_base.PPOTrainer"
PATH = f"{OWNER}._init_tokenizer"

#: The modules that load a tokenizer: that of the trainer, and that of the model's configuration.
MODULES = (OWNER.rpartition(".")[0], "verl.workers.config.model")

_MODEL = "actor_rollout_ref.model."

#: Field of the model's configuration -> the value that is set.
OPTIONS: Settings = {"tokenizer_path": "a/tokenizer", "custom_chat_template": "a template"}

_DOCS = (
    "trainer/config/model/hf_model.yaml: tokenizer_path, the tokenizer if it is not that of the model's path; "
    "custom_chat_template, for the model"
)


class Configuration:
    """A fake of transformers' configuration of a model."""

    @staticmethod
    def from_pretrained(_path: str, **_options: object) -> SimpleNamespace:
        """A configuration of one architecture."""
        return SimpleNamespace(architectures=["AForCausalLM"], model_type="a", tie_word_embeddings=False)


def loaded_tokenizer(path: str, **_options: object) -> SimpleNamespace:
    """A fake tokenizer, which knows its path."""
    return SimpleNamespace(path=path, chat_template="", bos_token_id=0, eos_token_id=1, pad_token_id=2)


def itself(path: str, **_options: object) -> str:
    """The path of a file that is on this machine."""
    return path


def nothing(*_arguments: object, **_options: object) -> None:
    """Do nothing, and return None: there is no processor, no library to import, no generation config."""


def instantiated(config: Any, *_kind: object) -> Any:  # noqa: ANN401 - a section of the configuration, its dataclass
    """An object of the dataclass that a section names, as hydra makes it."""
    module, _, name = config["_target_"].rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    return kind(**{name: config[name] for name in config if name in known})


#: Name in a module -> its fake.
FAKES: dict[str, Callable[..., Any]] = {
    "copy_to_local": itself,
    "hf_tokenizer": loaded_tokenizer,
    "AutoConfig": Configuration,
    "omega_conf_to_dataclass": instantiated,
    **dict.fromkeys(("hf_processor", "get_generation_config", "update_model_config", "import_external_libs"), nothing),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the trainer's tokenizer."""
    if target.has(PATH) and not target.fails(PATH):
        yield from try_bind(target, PATH, "config", lambda: [_tokenizer(target)])


def tokenizer_of_run(
    owner: type,
    config: Any,  # noqa: ANN401 - a configuration of the target
    options: Settings,
    places: dict[str, str],
) -> dict[str, float]:
    """Whether each option is that of the tokenizer with which the trainer makes its data sets."""
    trainer = bare_instance(owner, config=config)
    trainer._init_tokenizer()  # noqa: SLF001 - called by the trainer's init_workers
    own = {"tokenizer_path": trainer.tokenizer.path, "custom_chat_template": trainer.tokenizer.chat_template}
    return {place: arrives(options[setting], own[place]) for place, setting in places.items()}


def _tokenizer(target: Target) -> Boundary:
    fields: dict[str, Codec] = constants(**{f"{_MODEL}path": "a/model"})
    fields |= {f"{_MODEL}{name}": IfSet(f"{_MODEL}{name}") for name in OPTIONS}
    named = {f"{_MODEL}{name}": value for name, value in OPTIONS.items()}
    return bind_arriving(
        PATH,
        tokenizer_of_run,
        {"owner": Constant(Function(OWNER)), "config": default_config(target, "", fields, resolved=True)},
        {name: f"{_MODEL}{name}" for name in OPTIONS},
        settings={"a tokenizer of the run": named},
        cite=_DOCS,
        reach=", ".join(f"{name}={value}" for name, value in named.items()),
        fakes=present(target, {f"{module}.{name}": fake for module in MODULES for name, fake in FAKES.items()}),
    )
