"""What updates of verl's workers share on a specimen: actor and critic, their configuration, a reducer of logs."""

import json
from collections.abc import Mapping

from adapters.checks import rewritten
from adapters.verl_specimen import files

REDUCE = """
    def reduce_metrics(metrics):
        return {name: sum(values) / len(values) for name, values in metrics.items()}
"""

FIELDS = """        use_torch_compile: bool = True
        ppo_mini_batch_size: int = 1
        ppo_epochs: int = 1
        use_dynamic_bsz: bool = False
        ppo_max_token_len_per_gpu: int = 16384
        clip_ratio: float = 0.2
"""

CONFIG = "verl/workers/config/actor.py"


def update_files() -> dict[str, str]:
    """The tree of the sound specimen whose actor's configuration has the fields of an update."""
    tree = files()
    fields = tree[CONFIG].replace("        clip_ratio: float = 0.2\n", FIELDS).replace('"k3"', '"low_var_kl"')
    return tree | {CONFIG: fields, "verl/utils/metric/__init__.py": REDUCE}


#: Words of a specimen of both workers, for the actor and for the critic.
ACTOR = {
    "KIND": "DataParallelPPOActor",
    "ROLE": "actor",
    "UPDATE": "update_policy",
    "LOSS": '(self._forward_micro_batch({"input_ids": ids})[1] * kept).sum()',
}
CRITIC = {
    "KIND": "DataParallelPPOCritic",
    "ROLE": "critic",
    "UPDATE": "update_critic",
    "LOSS": "(self.critic_module(ids).logits[:, :-1] * kept).sum()",
}

#: A method of the actor that its fake replaces.
FORWARD = """
        def _forward_micro_batch(self, micro_batch):
            raise RuntimeError("a model is asked for")
"""


def worker_files(source: str, words: Mapping[str, str], epochs: int) -> dict[str, str]:
    """The tree of :func:`update_files` with an actor and a critic of this source, in which words are replaced."""
    return update_files() | {
        "verl/workers/actor/dp_actor.py": rewritten(source, {**ACTOR, **words}) + FORWARD,
        "verl/workers/critic/dp_critic.py": rewritten(source, {**CRITIC, **words}),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps({"critic": {"ppo_epochs": epochs, "grad_clip": 1.0}}),
    }
