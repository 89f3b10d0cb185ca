"""Boundary of the tokenizer of verl's trainer, which its data sets use: the model's options arrive there."""

import sys
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.arriving_settings import arrives, bind_arriving
from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings

#: The trainer, whose method makes the tokenizer.
OWNER = "verl.trainer.ppo.v1.trainer_base.PPOTrainer"
PATH = f"{OWNER}._init_tokenizer"

#: The class of the model's configuration, and the section with its options.
MODEL, SECTION = "verl.workers.config.model.HFModelConfig", "actor_rollout_ref.model"

#: Option of the model -> the value that is set.
OPTIONS: Settings = {"tokenizer_path": "folder/of/the/tokenizer", "custom_chat_template": "{{ messages }}"}

#: Where an option arrives -> the option.
_PLACES = {"folder of the tokenizer": "tokenizer_path", "its chat template": "custom_chat_template"}

_DOCS = (
    "trainer/config/model/hf_model.yaml: tokenizer_path, in case it is not the same as path; custom_chat_template for "
    "the model; trainer, _init_dataloader: the data sets apply the trainer's tokenizer"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the trainer, in releases whose model has these options."""
    file = target.root / "verl" / "trainer" / "config" / "model" / "hf_model.yaml"
    if target.has(PATH) and not target.fails(OWNER) and target.has(MODEL) and file.is_file():
        known = file.read_text(encoding="utf-8")
        options = {option: value for option, value in OPTIONS.items() if f"\n{option}:" in known}
        yield from try_bind(target, PATH, "config", lambda: [_boundary(target, options)])


def trainer_options(
    owner: type,
    model: type,
    config: Any,  # noqa: ANN401 - the trainer's configuration
    options: Settings,
    places: Mapping[str, str],
) -> dict[str, float]:
    """Let a trainer make its tokenizer; return which options arrive there."""
    trainer = bare_instance(owner, config=config)
    with replaced_globals(*(vars(sys.modules[kind.__module__]) for kind in (owner, model)), **_fakes(model)):
        trainer._init_tokenizer()  # noqa: SLF001 - the method that the trainer's constructor calls
    # Without a processor, the tokenizer has the template.
    arrived = {"tokenizer_path": trainer.tokenizer.folder, "custom_chat_template": trainer.tokenizer.chat_template}
    return {place: arrives(options[option], arrived[option]) for place, option in places.items()}


def _fakes(model: type) -> dict[str, Any]:
    """Names in the modules of trainer and model -> fakes: nothing is downloaded, and a tokenizer knows its folder.

    A section becomes the model's configuration without Hydra, which would resolve its ``_target_``.
    """
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)

    def tokenizer_of(folder: str, **_options: object) -> SimpleNamespace:
        return SimpleNamespace(folder=folder, chat_template="the tokenizer's own", **ids)

    read = SimpleNamespace(from_pretrained=lambda *_about, **_options: SimpleNamespace(architectures=["Model"]))
    return {
        "copy_to_local": lambda src, **_options: src,
        "hf_tokenizer": tokenizer_of,
        "hf_processor": lambda *_about, **_options: None,
        "get_generation_config": lambda *_about, **_options: None,
        "update_model_config": lambda *_about, **_options: None,
        "AutoConfig": read,
        "omega_conf_to_dataclass": lambda section: model(**{name: section[name] for name in ("path", *OPTIONS)}),
    }


def _boundary(target: Target, options: Settings) -> Boundary:
    fields = {f"{SECTION}.{option}": Knob(option) for option in options}
    config = default_config(target, "", {f"{SECTION}.path": Constant("folder/of/the/model"), **fields})
    return bind_arriving(
        PATH,
        trainer_options,
        {**functions(owner=OWNER, model=MODEL), "config": config},
        {place: option for place, option in _PLACES.items() if option in options},
        settings={"options of the tokenizer": options},
        cite=_DOCS,
        reach="trainer.use_v1=True (the default), "
        + ", ".join(f"{SECTION}.{option}={value}" for option, value in options.items()),
    )
