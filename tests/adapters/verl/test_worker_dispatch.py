"""Calls of verl's worker groups, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.test_transport import PROTOCOL
from adapters.verl.test_transport import SOUND as WHOLE
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, worker_dispatch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

PADDING = """
    class DataProtoConfig:
        auto_padding_key = "padding is enabled"
"""

DECORATOR = """
    from verl.protocol import DataProto, DataProtoConfig

    def _split_args_kwargs_data_proto_with_auto_padding(parts, *args, **kwargs):
        (data,) = args or kwargs.values()
        missing = -len(data) % parts if data.meta_info.pop(DataProtoConfig.auto_padding_key, False) else 0
        missing += parts if EXTRA else 0
        whole = DataProto.concat([data, *[data[:1]] * missing]) if missing else data
        split = whole.chunk(parts)
        named = {"missing": missing}
        return ([split], named) if args else ([], {"data": split, **named})

    def dispatch_dp_compute_data_proto(group, *args, **kwargs):
        return _split_args_kwargs_data_proto_with_auto_padding(group.world_size, *args, **kwargs)

    def collect_dp_compute_data_proto(group, outputs):
        assert len(outputs) == group.world_size
        return DataProto.concat(JOINED)

    def dispatch_lazy_compute_data_proto(name, group, data):
        from verl.utils.ray_utils import parallel_put
        places = group._dispatch_info[name]
        split = parallel_put(data.chunk(max(places) + 1), max_workers=1)
        return ([[split[PLACE] for rank in range(group.world_size)]], {})

    def collect_lazy_compute_data_proto(name, group, outputs):
        return DataProto.concat([one for one, counts in zip(outputs, group._collect_info[name]) if counts])
"""

CALLER = """
    import ray
    from verl.protocol import DataProto

    def func_generator(self, method_name, dispatch_fn, collect_fn, execute_fn, blocking):
        def call(*args, **kwargs):
            args, kwargs = dispatch_fn(self, *args, **kwargs)
            missing = kwargs.pop("missing", 0)
            output = collect_fn(self, ray.get(execute_fn(method_name, *args, **kwargs)))
            return output[: len(output) - LAST]
        return call
"""

GROUP = """
    class WorkerGroup:
        @property
        def world_size(self):
            return len(self._workers)
"""

PUT = """
    def parallel_put(values, max_workers):
        raise RuntimeError("a cluster is asked for")
"""

#: In front of the settings of the mesh.
MESH = "mesh "

SOUND = {"EXTRA": "False", "JOINED": "outputs", "PLACE": "places[rank]", "LAST": "missing"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    def written(source: str) -> str:
        return rewritten(source, {**WHOLE, **SOUND, **broken})

    base = "verl/single_controller"
    tree = files() | {
        "verl/protocol.py": written(PROTOCOL) + PADDING,
        f"{base}/base/decorator.py": written(DECORATOR),
        f"{base}/base/worker_group.py": GROUP,
        f"{base}/ray/base.py": written(CALLER),
        "verl/utils/ray_utils.py": PUT,
    }
    target = loads(FRAMEWORK, tree)
    made = [one for one in worker_dispatch.boundaries(target) if isinstance(one, Boundary)]
    return target, {f"{MESH * ('lazy' in one.path)}{s}": one for one in made for s in one.settings}


def test_reads_back(loads: Loads) -> None:
    """All boundaries answer, and their calls are read back."""
    target, mine = _bound(loads)
    assert set(mine) == {"equal parts", "padded", "padded, by name", "mesh equal parts"}
    check_calls(target, mine.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (PLC004, "equal parts", {"JOINED": "outputs[::-1]"}),
    (PLC004, "mesh equal parts", {"PLACE": "places[rank - 1]"}),
    (DAT002, "padded", {"LAST": "0"}),
    (DAT002, "padded, by name", {"EXTRA": "kwargs", "LAST": "missing - 1"}),
    (DAT002, "padded, by name", {"LAST": "(missing or 2 * bool(kwargs))"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """The order of the ranks, the part of another rank, added rows that stay, rows added by name only.

    Rows that are removed although none were added.
    """
    target, mine = _bound(loads, **(broken if found else {}))
    check_verdict(law, mine[setting], setting.removeprefix(MESH), target, found=found)
