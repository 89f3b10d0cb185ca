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
        def __init__(self, tokenizer, max_length=64):
            self.tokenizer, self.max_length = tokenizer, max_length

        def __call__(self, examples):
            found = {"input_ids": [], "labels": [], "prompts": []}
            for one in examples:
                talk, of = one["messages"], self.tokenizer
                ids = of(of.apply_chat_template(talk, tokenize=False, add_generation_prompt={asks}))["input_ids"]
                asked = of.apply_chat_template(talk[:-1], tokenize=False, add_generation_prompt=True)
                start = len(of(asked)["input_ids"]) - max(0, {lost})
                ids = ids[-self.max_length :]
                found["input_ids"].append(ids)
                found["prompts"].append(ids[:start])
                found["labels"].append(([-100] * start + ids[start:])[: len(ids)])
            made = {name: self.padded(rows, -100 if name == "labels" else 0) for name, rows in found.items()}
            ones = {name: [[1] * len(row) for row in rows] for name, rows in found.items()}
            made["attention_mask"] = self.padded(ones["input_ids"], 0)
            return {**made, "prompt_attention_mask": self.padded(ones["prompts"], 0)}

        def padded(self, rows, padding):
            width = max(map(len, rows))
            return torch.tensor([[padding] * (width - len(row)) + row for row in rows])
"""

GRPO = """
    import torch

    from trl.trainer.base import Trainer

    def parse_response(tokenizer, ids):
        raise RuntimeError("a schema is read here")

    class GRPOTrainer(Trainer):
        def _tokenize_prompts(self, prompts):
            of = self.processing_class
            if isinstance(prompts[0], str):
                return [of(text={text})["input_ids"] for text in prompts], None, {}
            return [of.apply_chat_template(talk, add_generation_prompt={asked}) for talk in prompts], None, {}

        def _get_tool_suffix_ids(self, tool_messages):
            talk = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w1"}]
            of = self.processing_class
            before = of.apply_chat_template(talk)
            if {trims}:
                before = before[: len(before) - before[::-1].index(self.eos_token_id)]
            return of.apply_chat_template(talk + tool_messages, add_generation_prompt=True)[len(before):]

        def _tool_call_loop(self, prompts, prompt_ids, completion_ids, completions, logprobs):
            masks, called, failed = [[1] * len(own) for own in completion_ids], 0, 0
            for row, own in enumerate(completion_ids):
                for call in completions[row][-1].get("tool_calls", ()):
                    name, called = call["function"]["name"], called + 1
                    if name in self._sync_tool_dicts[row]:
                        result = self._sync_tool_dicts[row][name]()
                    else:
                        result, failed = "w9", failed + 1
                    after = self._get_tool_suffix_ids([{"role": "tool", "name": name, "content": result}])
                    if {samples}:
                        before = own
                    else:
                        talk = self.processing_class.apply_chat_template(prompts[row] + completions[row])
                        before = talk[len(prompt_ids[row]):]
                    last = self._generate_single_turn([prompt_ids[row] + before + after], None)[0][0]
                    completion_ids[row] = before + after + last
                    masks[row] = [1] * len(before) + [{result}] * len(after) + [1] * len(last)
            return masks, completions, completion_ids, logprobs, called, failed

        def _generate(self, prompts):
            ids = [self.processing_class.apply_chat_template(talk, add_generation_prompt=True) for talk in prompts]
            sampled, _ = self._generate_single_turn(ids, None)
            messages = [[parse_response(self.processing_class, own)] for own in sampled]
            *_, called, failed = self._tool_call_loop(prompts, ids, sampled, messages, None)
            rows, called, failed = (
                self.accelerator.gather(torch.tensor(number)).sum() for number in (len(prompts), called, failed)
            )
            self._metrics["train"]["tools/call_frequency"].append((called / rows).item())
            share = (failed / {among}).item() if called else 0.0
            self._metrics["train"]["tools/failure_frequency"].append(share)
"""

#: The same loop in a trainer with a teacher, whose rows all have the same tools.
DISTILLATION = (
    GRPO.replace("GRPOTrainer", "DistillationTrainer")
    .replace("self._sync_tool_dicts[row]", "self._tool_dict")
    .replace(
        "    def _get_tool_suffix_ids",
        """    def __init__(self, model, teacher_model, **more):
            super().__init__(model, [], **more)

        def _get_tool_suffix_ids""",
    )
)

#: A worker that samples beside the trainer.
WORKER = """
    class AsyncRolloutWorker:
        def _build_messages_suffix_ids(self, messages):
            asked = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
            start = self.tokenizer.apply_chat_template(asked)
            while {trims} and start[-1] != self.tokenizer.eos_token_id:
                start.pop()
            return self.tokenizer.apply_chat_template(asked + messages, add_generation_prompt=True)[len(start):]
"""

#: A trainer whose method tokenizes and samples.
RLOO = """
    import torch

    from trl.trainer.base import Trainer

    class RLOOTrainer(Trainer):
        def _generate_single_turn(self, prompts, images):
            of = self.processing_class
            rows = [
                of(text={text})["input_ids"]
                if isinstance(text, str)
                else of.apply_chat_template(text, add_generation_prompt={asked})
                for text in prompts
            ]
            width = max(map(len, rows))
            ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
            attends = torch.tensor([[{attends}] * (width - len(row)) + [1] * len(row) for row in rows])
            sampled = self.model.generate(input_ids=ids, attention_mask=attends)[:, width:]
            prompt_ids, completion_ids = rows, sampled.tolist()
            return prompt_ids, completion_ids
"""

BASE = """
    from collections import defaultdict
    from types import SimpleNamespace

    class Trainer:
        def __init__(self, model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.args, self.processing_class, self.ref_model = model, args, processing_class, None
            self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
            self.state, self.accelerator = SimpleNamespace(), SimpleNamespace()

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
SOUND = {
    "cut": "shared",
    "asks": "False",
    "lost": "len(ids) - self.max_length",
    "trims": "True",
    "samples": "True",
    "result": "0",
    "among": "called",
    "asked": "True",
    "text": "text",
    "attends": "0",
}


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL with what is at the places of :data:`SOUND`."""
    every = {
        "trl/__init__.py": "",
        "trl/data_utils.py": DATA,
        "trl/trainer/base.py": BASE,
        "trl/trainer/utils.py": COLLATOR,
        "trl/trainer/grpo_config.py": CONFIG,
        "trl/trainer/grpo_trainer.py": GRPO,
        "trl/trainer/rloo_config.py": CONFIG.replace("GRPOConfig", "RLOOConfig"),
        "trl/trainer/rloo_trainer.py": RLOO,
        "trl/experimental/async_grpo/async_rollout_worker.py": WORKER,
        "trl/trainer/distillation_config.py": CONFIG.replace("GRPOConfig", "DistillationConfig"),
        "trl/trainer/distillation_trainer.py": DISTILLATION,
    }
    for name, part in (SOUND | choices).items():
        every = {path: text.replace("{" + name + "}", part) for path, text in every.items()}
    return every
