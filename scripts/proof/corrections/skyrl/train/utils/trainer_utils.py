# Corrections of skyrl/train/utils/trainer_utils.py (0.3.0): functions of which a few expressions are replaced.
# - A row that is kept has all of its columns, and a replaced row those of the row that replaces it.
# - A prompt is kept by the outcomes of its trajectories, not of their steps.
# - A batch with too many prompts is cut after a prompt, although a trajectory has a row per step.

import sys

from replaced import replaced

#: Columns of a row that are not always there.
_PER_ROW = ("trajectory_ids", "is_last_step", "rollout_expert_indices", "env_metrics", "pixel_values", "image_grid_thw")

_OUTCOMES = "_outcomes(generator_output, uids, rewards)"


def _outcomes(generator_output, uids, rewards):
    last = generator_output.get("is_last_step") or [True] * len(uids)
    return [(uid, reward) for uid, reward, is_last in zip(uids, rewards, last) if is_last]


def _rows_of(uids, prompts):
    first = list(dict.fromkeys(uids))[:prompts]
    return sum(uid in first for uid in uids)


handle_filter_sampling = replaced(
    sys.modules[__name__],
    "handle_filter_sampling",
    {
        "for uid, reward in zip(uids, rewards):": f"for uid, reward in {_OUTCOMES}:",
        "= target_batch_size * n_samples_per_prompt": '= _rows_of(collected_state["collected_uids"], target_batch_size)',
    },
)


_shortened = filter_generator_output


def filter_generator_output(output, kept_indices):
    present = [name for name in _PER_ROW if output.get(name)]
    return _shortened(output, kept_indices) | {name: [output[name][i] for i in kept_indices] for name in present}


_ALL_COLUMNS = """for bad_idx, replacement_idx in zip(bad_indices, replacement_indices):
            for name in _PER_ROW:
                if generator_output.get(name):
                    generator_output[name][bad_idx] = generator_output[name][replacement_idx]
        replaced_uids = uids.copy()
"""

handle_replace_sampling = replaced(
    sys.modules[__name__], "handle_replace_sampling", {"replaced_uids = uids.copy()\n": _ALL_COLUMNS}
)
