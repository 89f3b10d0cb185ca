"""The tokenizer of verl's workers before 0.8, on specimens in words of our own."""

import json

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, worker_tokenizers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

FSDP = """
    copy_to_local = hf_tokenizer = None

    class ActorRolloutRefWorker:
        def _build_model_optimizer(self, model_path, optim_config, role="ref"):
            assert role in ("actor", "ref")
            from transformers import AutoModelForCausalLM
            from verl.utils.fs import copy_to_local as copied

            model = self.config.model
            self.tokenizer = hf_tokenizer(copied(ACTOR), trust=False)
            raise RuntimeError("no model is built")

    class CriticWorker:
        def _build_critic_model_optimizer(self, config):
            model = config.model
            self.tokenizer = hf_tokenizer(copy_to_local(CRITIC))
"""

MEGATRON = """
    class MegatronWorker:
        def _init(self, model_path, tokenizer_path):
            from transformers import AutoConfig
            from verl.utils import hf_tokenizer

            self.tokenizer = hf_tokenizer(tokenizer_path or model_path)

    class ActorRolloutRefWorker(MegatronWorker):
        def _build_model_optimizer(self, model_path, optim_config):
            model = self.config.model
            self._init(model_path, ACTOR)

    class CriticWorker(MegatronWorker):
        def _build_critic_model_optimizer(self, model_path, optim_config):
            model = self.config.model
            self._init(model_path, CRITIC)
"""

OWN = "model.tokenizer_path or model.path"
SOUND = {"ACTOR": OWN, "CRITIC": OWN}
CONFIG = {
    "actor_rollout_ref": {"model": {"path": "", "tokenizer_path": None}},
    "critic": {"model": {"path": "", "tokenizer_path": None}},
}
FILES = ("ppo_trainer.yaml", "ppo_megatron_trainer.yaml")

#: Files with the path of the tokenizer, by the worker that reads it.
OFFERED = {
    "Actor": {"model/hf_model.yaml": "tokenizer_path: null"},
    "Critic": {"critic/critic.yaml": "model:\n  tokenizer_path: null"},
}


def _bound(
    loads: Loads, offered: tuple[str, ...] = tuple(OFFERED), **broken: str
) -> tuple[Target, dict[str, Boundary]]:
    parts, folder = SOUND | broken, "verl/trainer/config"
    tree = {
        "verl/workers/fsdp_workers.py": rewritten(FSDP, parts),
        "verl/workers/megatron_workers.py": rewritten(MEGATRON, parts),
        "verl/utils/__init__.py": "hf_tokenizer = None",
        "verl/utils/fs.py": "copy_to_local = None",
        **{f"{folder}/{name}": json.dumps(CONFIG) for name in FILES},
        **{f"{folder}/{name}": text for role in offered for name, text in OFFERED[role].items()},
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    made = [one for one in worker_tokenizers.boundaries(target) if isinstance(one, Boundary)]
    return target, {".".join(one.path.split(".")[2:4]): one for one in made}


PLACES = {
    "fsdp_workers.ActorRolloutRefWorker": "ACTOR",
    "fsdp_workers.CriticWorker": "CRITIC",
    "megatron_workers.ActorRolloutRefWorker": "ACTOR",
    "megatron_workers.CriticWorker": "CRITIC",
}


def test_answers_and_reads_back(loads: Loads) -> None:
    """Actor and critic on both engines."""
    target, bound = _bound(loads)
    assert list(bound) == list(PLACES)
    check_calls(target, list(bound.values()))


@pytest.mark.parametrize(("place", "role"), PLACES.items())
@pytest.mark.parametrize("broken", ["", "model.path", '"a/third"'])
def test_tokenizer_of_a_worker(loads: Loads, place: str, role: str, broken: str) -> None:
    """The tokenizer of the model's path, and one that nobody set."""
    target, bound = _bound(loads, tuple(OFFERED), **({role: broken} if broken else {}))
    check_verdict(CFG004, bound[place], "a tokenizer of its own", target, found=bool(broken))


@pytest.mark.parametrize("role", OFFERED)
def test_option_of_one_worker(loads: Loads, role: str) -> None:
    """A worker whose own configuration file lacks the option has no boundary here."""
    _, bound = _bound(loads, offered=(role,))
    assert list(bound) == [place for place in PLACES if role in place]


def test_releases_without_the_option(loads: Loads) -> None:
    """Workers without a path of the tokenizer have no boundary here."""
    tree = {"verl/workers/fsdp_workers.py": FSDP, "verl/trainer/__init__.py": ""}
    assert list(worker_tokenizers.boundaries(loads(FRAMEWORK, tree, {}))) == []
