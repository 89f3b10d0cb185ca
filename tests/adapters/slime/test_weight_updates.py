"""Weights that slime sends to its engines, on specimens of both backends in words of our own."""

import pytest

from adapters.checks import Loads, judged_at, rewritten
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.slime import FRAMEWORK, fsdp_weights, weight_updates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TENSORS = """
    import ray
    import torch.distributed as dist
    from megatron.core import mpu
    from slime.backends.megatron_utils.sglang import FlattenedTensorBucket, MultiprocessingSerializer

    class UpdateWeightFromTensor:
        def __init__(self, args, model, weights_getter, *, model_name, quantization_config):
            self.limit, self.ask = args.update_weight_buffer_size, weights_getter
            assert mpu.get_pipeline_model_parallel_world_size() == 1
            assert mpu.get_tensor_model_parallel_rank() == 0
            CACHE

        def connect_rollout_engines(self, engines, lock):
            self.engines, self.group = engines, dist.new_group(ranks=[0])

        def update_weights(self):
            bucket, size = [], 0
            for name, weight in self.ask().items():
                if bucket and size + weight.nbytes > self.limit:
                    self.send(bucket)
                    bucket, size = [], 0
                name = name.replace("module.module.decoder.", "model.").replace("linear_fc2", "down_proj")
                bucket.append((name, weight))
                size += weight.nbytes
            if LAST:
                self.send(bucket)

        def send(self, named):
            joined = FlattenedTensorBucket(named_tensors=named)
            both = {"flattened_tensor": joined.get_flattened_tensor(), "metadata": joined.get_metadata()}
            every = [None]
            dist.gather_object([MultiprocessingSerializer.serialize(both)], every, dst=0, group=self.group)
            for engine in self.engines:
                method = engine.update_weights_from_tensor
                ray.get(method.remote(serialized_named_tensors=every[0], load_format="flattened_bucket"))
                ray.get(engine.flush_cache.remote())
"""

BROADCAST = """
    import socket

    import ray
    import torch.distributed as dist
    from slime.utils.distributed_utils import init_process_group
    from tqdm import tqdm

    class UpdateWeightFromDistributed:
        def __init__(self, args, model, weights_getter, *, model_name, quantization_config):
            self.model = model[0]

        def connect_rollout_engines(self, engines, lock):
            self.engines, self.lock = engines, lock
            ray._private.services.get_node_ip_address()
            with socket.socket() as found:
                found.bind(("", 0))
                assert found.getsockname()[1] > 0
            self.group = init_process_group(group_name="slime")

        def update_weights(self):
            every = [None]
            dist.all_gather_object(every, [name for name, _ in self.model.named_parameters()])
            bar = tqdm(self.model.named_parameters())
            for (name, weight), known in zip(bar, every[0]):
                assert name == known and ray.get(self.lock.acquire.remote())
                name = name.replace("module.decoder.", "model.").replace("linear_fc2", "down_proj")
                for engine in self.engines:
                    engine.update_weights_from_distributed.remote(names=[name])
                dist.broadcast(SENT, 0, group=self.group, async_op=True).wait()
                self.lock.release.remote()
                bar.update(1)
"""

HELPERS = {
    "slime/backends/megatron_utils/sglang.py": """
        FlattenedTensorBucket = MultiprocessingSerializer = None
    """,
    "slime/utils/distributed_utils.py": """
        def init_process_group(**options):
            raise RuntimeError("no network")
    """,
}

ACTOR = """
    import ray
    import torch
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from transformers import AutoModelForCausalLM

    from slime.backends.fsdp_utils.update_weight_utils import Update
    from slime.utils.profile_utils import TrainProfiler

    def apply_fsdp2(model, mesh):
        raise RuntimeError("no devices")

    class TrainRayActor:
        def init(self, args, role):
            raise RuntimeError("no devices")

    class FSDPTrainRayActor(TrainRayActor):
        def setup_device_mesh(self):
            raise RuntimeError("no devices")

        def init(self, args, role, with_ref=False):
            super().init(args, role)
            self.setup_device_mesh()
            self.prof = TrainProfiler(args)
            with torch.autocast(device_type="cuda"):
                self.model = apply_fsdp2(AutoModelForCausalLM.from_pretrained(args.hf_checkpoint), mesh=self.dp_mesh)
            torch.cuda.synchronize()
            self.held = {}
            for name, weight in get_model_state_dict(self.model).items():
                self.held[name] = torch.empty_like(weight, pin_memory=True)
                FILL
            self.updater = Update(self.args, self.held)
            self.prof.on_init_end()

        def update_weights(self):
            engines, lock, new, _, _ = ray.get(self.rollout_manager.get_rollout_engines_and_lock.remote())
            engine_gpu_counts = new
            self.updater.send(engines[0], self.args.colocate)
            ray.get(self.rollout_manager.clear_num_new_engines.remote())
"""

UPDATE = """
    import ray
    import torch
    import torch.distributed as dist

    try:
        from missing.tensor_bucket import FlattenedTensorBucket

        use_flattened_tensor_bucket = True
    except ImportError:
        use_flattened_tensor_bucket = False

    class Update:
        def __init__(self, args, held):
            self.held, self.names = held, NAMES

        def send(self, engine, colocate):
            for name in self.names:
                weight = self.held[name].cuda()
                if colocate:
                    assert use_flattened_tensor_bucket and FlattenedTensorBucket([(name, weight)])
                    ray.get(engine.update_weights_from_tensor.remote(serialized_named_tensors=[[(name, weight)]]))
                else:
                    engine.update_weights_from_distributed.remote(names=[name])
                    dist.broadcast(weight.to(torch.bfloat16), 0)
"""

SOUND = {
    "CACHE": "pass",
    "LAST": "bucket",
    "SENT": "weight.data",
    "FILL": "self.held[name].copy_(weight)",
    "NAMES": "list(held)",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    folder = "slime/backends/megatron_utils/update_weight"
    files = {
        f"{folder}/update_weight_from_tensor.py": TENSORS,
        f"{folder}/update_weight_from_distributed.py": BROADCAST,
        "slime/backends/fsdp_utils/actor.py": ACTOR,
        "slime/backends/fsdp_utils/update_weight_utils.py": UPDATE,
        "slime/utils/profile_utils.py": "TrainProfiler = None",
        **HELPERS,
    }
    files = {path: rewritten(source, SOUND | broken) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    made = [*weight_updates.boundaries(target), *fsdp_weights.boundaries(target)]
    found = [one for one in made if isinstance(one, Boundary)]
    return target, {f"{_backend(one)}, {setting}": one for one in found for setting in one.settings}


def _backend(boundary: Boundary) -> str:
    return "fsdp" if "fsdp" in boundary.path else "megatron"


EVERY = {f"{backend}, {setting}" for backend in ("megatron", "fsdp") for setting in ("shared devices", "own devices")}


def test_answers_and_reads_back(loads: Loads) -> None:
    target, every = _bound(loads)
    assert set(every) == EVERY
    check_calls(target, every.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        (
            {"CACHE": "cached = {n: w.clone() for n, w in self.ask().items()}; self.ask = lambda: cached"},
            {"megatron, shared"},
        ),
        ({"LAST": "size == self.limit"}, {"megatron, shared"}),
        ({"SENT": "torch.ones_like(weight)", "import socket": "import socket, torch"}, {"megatron, own"}),
        ({"FILL": "pass"}, {"fsdp, shared", "fsdp, own"}),
        ({"NAMES": "[]"}, {"fsdp, shared", "fsdp, own"}),
        ({"NAMES": "list(held)[:1]"}, {"fsdp, shared", "fsdp, own"}),
    ],
)
def test_found_where_broken_alone(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """Old weights, a last bucket that is not sent, other numbers, and weights that are not stored or not listed."""
    target, every = _bound(loads, **broken)
    judgements = {name: judged_at(PLC004, one, name.partition(", ")[2], target) for name, one in every.items()}
    assert all(judgement.tried for judgement in judgements.values())
    found = {name for name, judgement in judgements.items() if judgement.found is not None}
    assert found == {f"{name} devices" for name in where}
