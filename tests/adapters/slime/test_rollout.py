"""The data of a rollout in slime's specimen, and its filter of prompts."""

import pytest
import torch

from adapters.checks import Loads, bound, check_verdict
from adapters.slime_specimen import CUT, files
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.slime import FRAMEWORK, rollout
from rl_sentinel.core.batch import EXCLUDED, batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.layout import Layout
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

#: The specimen's tools of a conversation.
_TOOLS = '(sample.metadata or {}).get("tools")'


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_log_probs_of_the_sampler_keep_their_numbers(loads: Loads, fixed: bool, found: bool) -> None:
    """Half precision on the way to the trainer loses digits."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["process_rollout_data", "default"]
    check_verdict(PLC004, boundary, "default", target, found=found)


def test_samples_reach_their_rank(loads: Loads) -> None:
    """Whatever rank has them, rows come back in the order of the rollout; a removed sample trains nothing."""
    target = loads(FRAMEWORK, files(fixed=True))
    boundary = bound(FRAMEWORK, target)["process_rollout_data", "default"]
    columns = {"token": torch.arange(8).reshape(4, 2), "reward": torch.tensor([1.0, 2.0, 3.0, 4.0])}
    excluded = torch.tensor([0, 0, EXCLUDED["rejected"], 0])
    batch = batch_of(torch.tensor([[1, 1], [1, 0], [0, 0], [1, 1]]).bool(), excluded=excluded, **columns)
    for ranks in (1, 2):
        run = execute(target, boundary, inputs_of(boundary, Case(batch, layout=Layout(ranks=ranks))))
        for name in ("token", "mask", "reward"):
            assert torch.equal(run.values[name], getattr(batch, name)), (ranks, name)


@pytest.mark.parametrize(("index", "found"), [("s.index", False), ("len(s.tokens)", True)])
def test_column_of_another_sample(loads: Loads, index: str, found: bool) -> None:
    tree = files(fixed=True)
    line = '"total_lengths": [len(s.tokens) for s in samples],'
    source = tree["slime/ray/rollout.py"].replace(line, f'{line} "sample_indices": [{index} for s in samples],')
    target = loads(FRAMEWORK, {**tree, "slime/ray/rollout.py": source})
    check_verdict(DAT001, bound(FRAMEWORK, target)["process_rollout_data", "default"], "default", target, found=found)


#: Ranks that fetch a rollout themselves, and store their part of it.
FETCHED = """
    import ray
    from megatron.core import mpu

    STORED = {}

    def get_local_storage():
        return STORED

    def process_rollout_data(rollout_id, args, data_buffer):
        data = ray.get(data_buffer.get_data.remote(rollout_id))
        rank, size = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
        for name, rows in data.items():
            STORED[name] = (ROWS)[rank::size]
"""


@pytest.mark.parametrize(("rows", "found"), [("rows", False), ('rows[::-1] if name == "tokens" else rows', True)])
@pytest.mark.parametrize("filled", [False, True])
def test_ranks_that_fetch_a_rollout(loads: Loads, rows: str, *, filled: bool, found: bool) -> None:
    """The second rank has its own rows, in all columns, in the module or in a dict of the caller."""
    source = FETCHED.replace("ROWS", rows)
    if filled:
        source = source.replace("data_buffer):", "data_buffer, dp_rank, dp_size, rollout_data):")
        source = source.replace("STORED[name]", "rollout_data[name]").replace("def get_local_storage", "def unused")
    tree = {**files(fixed=True), "slime/utils/data.py": source}
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["process_rollout_data", "default"]
    columns = {"token": torch.arange(8).reshape(4, 2), "reward": torch.tensor([1.0, 2.0, 3.0, 4.0])}
    batch = batch_of(torch.ones(4, 2).bool(), **columns)
    if not found:
        run = execute(target, boundary, inputs_of(boundary, Case(batch, layout=Layout(ranks=2))))
        assert torch.equal(run.values["token"], batch.token)
        assert torch.equal(run.values["reward"], batch.reward)
    check_verdict(PLC004, boundary, "default", target, found=found)


def _with_images(condition: str) -> dict[str, str]:
    """The specimen, whose data of a rollout have the images of its samples under a condition."""
    tree, key = files(fixed=True), '"multimodal_train_inputs"'
    images = f"**({{{key}: [s.multimodal_train_inputs for s in samples]}} if {condition} else {{}}),"
    source = tree["slime/ray/rollout.py"].replace('"tokens": [s', f'{images} "tokens": [s')
    source = source.replace("in data.items()}", f"in data.items() if key != {key}}}")
    source = source.replace("{**part, ", f"{{**part, **{{k: [data[k][n] for n in rows] for k in data if k == {key}}}, ")
    fields = tree["slime/utils/types.py"].replace(
        "tokens: list = None", "tokens: list = None\n        multimodal_train_inputs: dict = None"
    )
    return {**tree, "slime/ray/rollout.py": source, "slime/utils/types.py": fields}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("any(s.multimodal_train_inputs is not None for s in samples)", False),
        ("samples[0].multimodal_train_inputs is not None", True),
    ],
)
def test_images_of_some_samples(loads: Loads, condition: str, found: bool) -> None:
    """Images must reach the ranks although the first sample has none."""
    target = loads(FRAMEWORK, _with_images(condition))
    check_verdict(DAT001, bound(FRAMEWORK, target)["process_rollout_data", "default"], "default", target, found=found)


ACTOR = """
    import torch
    from megatron.core import mpu
    from slime.backends.megatron_utils.cp_utils import get_logits_and_tokens_offset_with_cp
    from slime.utils.data import process_rollout_data

    def cut(row, total, length):
        if mpu.get_context_parallel_world_size() == 1:
            return row
        first = total - length - 1
        held = get_logits_and_tokens_offset_with_cp(total, length)[2]
        return torch.cat([row[:0], *(row[low - first:high - first] for low, high in held if high)])

    class MegatronTrainRayActor:
        def _get_rollout_data(self, sent):
            rank, size = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
            data = process_rollout_data(self.args, sent, rank, size)
            for key in KEYS:
                rows = zip(data[key], data["total_lengths"], data["response_lengths"])
                data[key] = [cut(row, total, length) for row, total, length in rows]
            return data
"""


@pytest.mark.parametrize(
    ("keys", "setting", "found"),
    [
        (("rollout_log_probs", "teacher_log_probs"), "context parallel", False),
        (("rollout_log_probs",), "default", False),
        (("rollout_log_probs",), "context parallel", True),
    ],
)
def test_log_probs_of_a_rank(loads: Loads, keys: tuple[str, ...], setting: str, found: bool) -> None:
    """A rank has the log-probs of the tokens that it predicts, the teacher's as well as the sampler's."""
    tree, own = files(fixed=True), '"rollout_log_probs": [s.rollout_log_probs for s in samples],'
    tree["slime/ray/rollout.py"] = tree["slime/ray/rollout.py"].replace(
        own, f'{own} "teacher_log_probs": [s.teacher_log_probs.tolist() for s in samples],'
    )
    tree["slime/backends/megatron_utils/cp_utils.py"] = CUT
    tree["slime/backends/megatron_utils/actor.py"] = ACTOR.replace("KEYS", repr(keys))
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["_get_rollout_data", "default"]
    assert set(boundary.outputs) == {"rollout_logprob", "ref_logprob", "token", "mask"}
    check_verdict(PLC004, boundary, setting, target, found=found)


@pytest.mark.parametrize(("tools", "found"), [(_TOOLS, False), ("None", True), ("samples[-1][0].metadata", True)])
def test_tools_of_a_conversation(loads: Loads, tools: str, found: bool) -> None:
    """A conversation without its tools, or with those of another one, has other tokens."""
    tree = files(fixed=True)
    path = "slime/rollout/sft_rollout.py"
    source = tree[path].replace(_TOOLS, tools)
    target = loads(FRAMEWORK, {**tree, path: source})
    check_verdict(PLC004, bound(FRAMEWORK, target)["generate_rollout", "default"], "default", target, found=found)


EXAMPLE = """
    from slime.utils.mask_utils import MultiTurnLossMaskGenerator

    TOKENIZER = None

    def generate_rollout(args, rollout_id, data_buffer, evaluation=False):
        samples = [sample for (sample,) in data_buffer.get_samples(args.rollout_batch_size)]
        for sample in samples:
            generator = MultiTurnLossMaskGenerator(TOKENIZER, tokenizer_type=args.loss_mask_type)
            sample.tokens, mask = generator.get_loss_mask(sample.prompt, **(sample.metadata or {}))
            sample.response_length = len(mask) - mask.index(1)
            sample.loss_mask = KEPT
        return [[sample] for sample in samples]
"""


@pytest.mark.parametrize(("mask", "found"), [("mask[-sample.response_length :]", False), ("None", True)])
def test_masks_of_early_conversations(loads: Loads, mask: str, *, found: bool) -> None:
    """In early revisions, the supervised rollout is an example, and a sample without a mask trains all its tokens."""
    tree = files(fixed=True)
    del tree["slime/rollout/sft_rollout.py"]
    tree["slime/rollout/sft_example.py"] = EXAMPLE.replace("KEPT", mask)
    target = loads(FRAMEWORK, tree)
    boundary = bound(FRAMEWORK, target)["generate_rollout", "default"]
    check_verdict(PLC004, boundary, "default", target, found=found)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_prompts_without_a_difference(loads: Loads, fixed: bool, found: bool) -> None:
    """A deviation that is a rounding alone keeps a prompt of equal rewards."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["check_reward_nonzero_std", "default"]
    check_verdict(REF001, boundary, "default", target, found=found)


@pytest.mark.parametrize(("fixed", "found"), [(True, False), (False, True)])
def test_window_of_a_conversation(loads: Loads, fixed: bool, found: bool) -> None:
    """As many tokens as are trained, counted from the end, are others where a user speaks in between."""
    target = loads(FRAMEWORK, files(fixed=fixed))
    boundary = bound(FRAMEWORK, target)["generate_rollout", "default"]
    check_verdict(PLC004, boundary, "default", target, found=found)


def test_older_revision(loads: Loads) -> None:
    """Another class converts samples that cannot be removed, and each rank takes its rows from the whole."""
    tree = files(fixed=True)
    source = tree.pop("slime/ray/rollout.py").replace("class RolloutManager", "class RolloutController")
    source = source.replace("[0] * len(s.loss_mask) if s.remove_sample else s.loss_mask", "s.loss_mask")
    start = source.index("        def _split_train_data_by_dp")
    tree["slime/ray/buffer.py"] = (
        source[:start]
        .replace('"total_lengths"', '"sample_indices"')
        .replace("[len(s.tokens) for s in samples]", "[s.index for s in samples]")
    )
    tree["slime/utils/types.py"] = tree["slime/utils/types.py"].replace("remove_sample: bool = False", "")
    del tree["slime/utils/data.py"]
    tree["slime/backends/utils/data.py"] = """
    import ray
    import torch
    import torch.distributed as dist

    def process_rollout_data(args, sent, rank, size):
        data = ray.get(sent.inner)
        dist.broadcast_object_list([data], src=0)
        device = torch.cuda.current_device()
        own = {key: values[rank::size] for key, values in data.items()}
        return own | {"tokens": [torch.tensor(x, device=device) for x in own["tokens"]]}
"""
    target = loads(FRAMEWORK, tree)
    found = {b.path.rpartition(".")[2]: b for b in rollout.boundaries(target) if isinstance(b, Boundary)}
    boundary = found["process_rollout_data"]
    assert boundary.path.startswith("slime.ray.buffer.RolloutController.")
    batch = batch_of(torch.ones(4, 1).bool(), token=torch.arange(4).unsqueeze(1))
    run = execute(target, boundary, inputs_of(boundary, Case(batch, layout=Layout(ranks=2))))
    assert run.values["token"].tolist() == [[0], [1], [2], [3]]
