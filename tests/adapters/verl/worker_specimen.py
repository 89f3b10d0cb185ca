"""What updates of verl's workers share on a specimen: fields of the actor's configuration, and the reducer of a log."""

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
