"""slime's step that reduces its reports itself, and a user's rejection of tokens, on its specimen."""

import pytest

from adapters.checks import Loads, bound, check_verdict
from adapters.kit.round_trip import check_round_trip
from adapters.slime_specimen import files
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

BACKEND = "slime/backends/megatron_utils"

STEP = """
    import torch
    from megatron.core import mpu
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.training.global_vars import get_args

    def train_one_step(args, rollout_id, step_id, data_iterator, model, optimizer, opt_param_scheduler, count):
        args = get_args()
        run = get_forward_backward_func()
        reports = run(forward_step_func=None, data_iterator=data_iterator, model=model, num_microbatches=count)
        _, norm, _ = optimizer.step()
        opt_param_scheduler.step(increment=args.global_batch_size)
        values = sum(report["values"] for report in reports)
        torch.distributed.all_reduce(values, group=mpu.get_data_parallel_group(with_context_parallel=True))
        _, *sums = values.tolist()
        ranks = mpu.get_context_parallel_world_size()
        return {key: x * ranks / DIVISOR for key, x in zip(reports[0]["keys"], sums)}, norm
"""

#: The loss of the specimen, and what a user's function adds to it.
LOSS = '            log["train_rollout_logprob_abs_diff"]'
USER = """
            if args.custom_tis_function_path is not None and "reject" in args.custom_tis_function_path:
                import slime.backends.megatron_utils.cp_utils as reducers

                loss, modified_response_masks, more = load_function(args.custom_tis_function_path)(
                    args, pg_loss=loss, train_log_probs=batch["log_probs"], loss_masks=batch["loss_masks"],
                    rollout_log_probs=batch["rollout_log_probs"],
                )
                sizes = batch["total_lengths"], batch["response_lengths"]
                sums = [mask.sum() for mask in modified_response_masks]
                before, per_token = mean, args.calculate_per_token_loss
                mean = reducers.get_sum_of_sample_mean(*sizes, modified_response_masks, sums, per_token)
                log |= more
                kept = {name: REDUCE(log.pop(name)) for name in ("ois", *more)}
"""
LOADER = """
    def load_function(path):
        raise RuntimeError("there is no user")

    def policy_loss_function"""


def _bound(
    loads: Loads, setting: str, divisor: str = "args.global_batch_size", reduce: str = "before"
) -> tuple[Target, Boundary]:
    tree = files(fixed=True)
    loss, reports = f"{BACKEND}/loss.py", "slime/observability/train_metric_utils.py"
    tree[reports] = tree[reports].replace("def reduce_train_step_metrics", "def later")
    tree[f"{BACKEND}/model.py"] = STEP.replace("DIVISOR", divisor)
    source = tree[loss].replace(LOSS, USER.replace("REDUCE", reduce) + LOSS, 1)
    source = source.replace("def policy_loss_function", LOADER.strip(), 1)
    source = source.replace('log = {"pg_clipfrac"', 'kept = {}\n        log = {"pg_clipfrac"', 1)
    tree[loss] = source.replace(
        'return total, {"loss": total.detach()}', 'return total, {"loss": total.detach(), **kept}'
    )
    target = loads(FRAMEWORK, tree)
    found: dict[tuple[str, str], Boundary] = bound(FRAMEWORK, target)
    return target, found["policy_loss_function", setting]


@pytest.mark.parametrize(("divisor", "found"), [("args.global_batch_size", False), ("len(reports)", True)])
def test_reports_that_the_step_reduces(loads: Loads, divisor: str, *, found: bool) -> None:
    target, boundary = _bound(loads, "grpo", divisor=divisor)
    assert {"pg_loss", "entropy_loss"} <= set(boundary.outputs)
    check_round_trip(target, boundary)
    check_verdict(MET001, boundary, "grpo", target, found=found)


@pytest.mark.parametrize(("reduce", "found"), [("before", False), ("mean", True)])
def test_metrics_of_a_correction_that_rejects_tokens(loads: Loads, reduce: str, *, found: bool) -> None:
    """They are means over the tokens before the rejection."""
    target, boundary = _bound(loads, "grpo, rejection", reduce=reduce)
    assert set(boundary.outputs) == {"loss", "ois", "tis", "tis_clipfrac", "tis_abs"}
    check_round_trip(target, boundary)
    check_verdict(MET001, boundary, "grpo, rejection", target, found=found)
