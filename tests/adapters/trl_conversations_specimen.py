"""Call shapes of how TRL lays out conversations and calls tools, in words of our own."""

DATA = """
    from os.path import commonprefix

    def apply_chat_template(example, tokenizer):
        question = tokenizer.apply_chat_template(example["prompt"], tokenize=False, add_generation_prompt=True)
        sides = [name for name in example if name != "prompt"]
        whole = {
            name: tokenizer.apply_chat_template(example["prompt"] + example[name], tokenize=False) for name in sides
        }
        shared = commonprefix([question, *whole.values()])
        found = {"prompt": shared}
        for name, text in whole.items():
            found[name] = text[len({cut}):]
        return found
"""

COLLATOR = """
    import torch

    class DataCollatorForChatML:
        def __init__(self, tokenizer):
            self.tokenizer = tokenizer

        def __call__(self, examples):
            found = {"input_ids": [], "attention_mask": [], "labels": []}
            for one in examples:
                talk, of = one["messages"], self.tokenizer
                ids = of(of.apply_chat_template(talk, tokenize=False, add_generation_prompt={asks}))["input_ids"]
                asked = of.apply_chat_template(talk[:-1], tokenize=False, add_generation_prompt=True)
                start = len(of(asked)["input_ids"])
                found["input_ids"].append(ids)
                found["attention_mask"].append([1] * len(ids))
                found["labels"].append([-100] * start + ids[start:])
            width = max(map(len, found["input_ids"]))
            padding = {"input_ids": 0, "attention_mask": 0, "labels": -100}
            return {
                name: torch.tensor([[padding[name]] * (width - len(row)) + row for row in rows])
                for name, rows in found.items()
            }
"""

GRPO = """
    from trl.trainer.base import Trainer

    class GRPOTrainer(Trainer):
        def _get_tool_suffix_ids(self, tool_messages):
            talk = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w1"}]
            of = self.processing_class
            before = of.apply_chat_template(talk)
            if {trims}:
                before = before[: len(before) - before[::-1].index(self.eos_token_id)]
            return of.apply_chat_template(talk + tool_messages, add_generation_prompt=True)[len(before):]

        def _tool_call_loop(self, prompts, prompt_ids, completion_ids, completions, logprobs):
            masks = []
            for row, own in enumerate(completion_ids):
                name = completions[row][-1]["tool_calls"][0]["function"]["name"]
                result = self._sync_tool_dicts[row][name]()
                after = self._get_tool_suffix_ids([{"role": "tool", "name": name, "content": result}])
                if {samples}:
                    before = own
                else:
                    talk = self.processing_class.apply_chat_template(prompts[row] + completions[row])
                    before = talk[len(prompt_ids[row]):]
                last = self._generate_single_turn([prompt_ids[row] + before + after], None)[0][0]
                completion_ids[row] = before + after + last
                masks.append([1] * len(before) + [{result}] * len(after) + [1] * len(last))
            return masks, completions, completion_ids, logprobs, len(masks), 0
"""

BASE = """
    class Trainer:
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.args, self.processing_class = model, args, processing_class

        def _generate_single_turn(self, prompt_ids, images):
            raise RuntimeError("an engine runs here")
            return completion_ids, logprobs
"""

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GRPOConfig:
        output_dir: str = ""
"""

TRANSFORMERS = """
    from types import SimpleNamespace

    from jinja2 import Template
    from torch import nn

    LlamaConfig = SimpleNamespace

    class LlamaForCausalLM(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config

    class PreTrainedTokenizerFast:
        eos_token_id = 1

        def __init__(self, tokenizer_object, chat_template, **special):
            self.words, self.chat_template = tokenizer_object.model, chat_template

        def __call__(self, text, **options):
            return {"input_ids": [self.words[word] for word in text.split()]}

        def apply_chat_template(self, messages, tokenize=True, add_generation_prompt=False):
            text = Template(self.chat_template).render(messages=messages, add_generation_prompt=add_generation_prompt)
            return self(text)["input_ids"] if tokenize else text
"""

#: Place -> what stands there in a sound tree.
SOUND = {"cut": "shared", "asks": "False", "trims": "True", "samples": "True", "result": "0"}


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL with what is at the places of :data:`SOUND`."""
    every = {
        "trl/__init__.py": "",
        "trl/data_utils.py": DATA,
        "trl/trainer/base.py": BASE,
        "trl/trainer/utils.py": COLLATOR,
        "trl/trainer/grpo_config.py": CONFIG,
        "trl/trainer/grpo_trainer.py": GRPO,
    }
    for name, part in (SOUND | choices).items():
        every = {path: text.replace("{" + name + "}", part) for path, text in every.items()}
    return every
