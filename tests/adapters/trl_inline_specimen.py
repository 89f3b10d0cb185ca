"""Call shapes of a TRL trainer that asks vLLM itself, in words of our own, and of a tokenizer that keeps spaces."""

from adapters.trl_engines_specimen import OPTIONS
from adapters.trl_specimen import CONFIG
from adapters.trl_specimen import GRPO as SCORES
from adapters.trl_specimen import files as trainer_files
from adapters.trl_specimen import overlay as trainer_overlay

CLIENT = """
    class VLLMClient:
        def generate(self, prompts):
            json = self.post(prompts)
            return {"prompt_ids": json["a"], "completion_ids": json["b"], "logprobs": json["c"]}
"""

GRPO = """
    import torch
    from trl.trainer.grpo_scores import GRPOTrainer as Scores

    def gather_object(objects):
        return objects

    def broadcast_object_list(objects, from_process):
        return objects

    class GRPOTrainer(Scores):  # _metrics: {"train": defaultdict, "eval": defaultdict}
        def __init__(self, **parts):
            super().__init__(**parts)
            self.processing_class, self.max_prompt_length = self.tokenizer, None

        def _ids(self, text):
            return self.processing_class(text, add_special_tokens=False)["input_ids"]

        def _generate_single_turn(self, prompts):
            n, most, extra = self.num_generations, self.max_prompt_length or 0, self.args.generation_kwargs or {}
            prompt_ids = [self._ids(text)[-most:] for text in prompts]
            texts = [self.processing_class.decode(ids) for ids in prompt_ids] if most else prompts
            texts = {read}
            options = {"temperature": {heat}, "top_p": self.args.top_p, "max_tokens": self.args.max_completion_length}
            if self.vllm_mode == "colocate":
                key = "guided_decoding" if vllm.__version__ <= "0.10.2" else "structured_outputs"
                extra = {**extra, key: self.structured_outputs_regex}
                params = SamplingParams(n=1, **{**options, **extra})
                outputs = self.llm.generate(texts, sampling_params=params, use_tqdm=False)
                rows = [row for output in outputs for row in output.outputs]
                logprobs = [[next(iter(one.values())).logprob for one in row.logprobs] for row in rows]
                completion_ids = [row.token_ids for row in rows]
                return prompt_ids, completion_ids, logprobs
            sent, rank = [None], self.accelerator.process_index
            everyone = gather_object(texts)
            if self.accelerator.is_main_process:
                sent = [self.vllm_client.generate(prompts=everyone[::n], n=n, generation_kwargs=extra, **options)]
            broadcast_object_list(sent, from_process=0)
            mine = slice({rank} * len(prompts), ({rank} + 1) * len(prompts))
            completion_ids, logprobs = (sent[0][name][mine] for name in ("completion_ids", "logprobs"))
            return prompt_ids, completion_ids, logprobs
"""

TOKENIZER = """

    import re

    class PreTrainedTokenizerFast:
        def __init__(self, tokenizer_object, **special):
            self.special, self.backend_tokenizer = special, SimpleNamespace()
            named = {"<pad>": 0, "<eos>": 1}
            self.words = {**named, **{f"w{n}": 3 + n for n in range(29)}, **{f" w{n}": 40 + n for n in range(29)}}

        def __call__(self, text, **options):
            parts = re.findall("<[a-z]+>| ?w[0-9]+| ", text)
            return {"input_ids": [self.words.get(part, 2) for part in parts]}

        def decode(self, ids):
            texts = {number: word for word, number in self.words.items()}
            return "".join(texts.get(number, " ") for number in ids)
"""

TOKENIZERS = """
    from types import SimpleNamespace

    class Tokenizer:
        def __init__(self, model):
            self.model = model

    def part(*arguments, **options):
        return None

    Regex = str
    models = SimpleNamespace(WordLevel=lambda words, unk_token: words)
    decoders = SimpleNamespace(ByteLevel=part)
    pre_tokenizers = SimpleNamespace(Whitespace=object, Split=part, ByteLevel=part, Sequence=part)
"""

#: Place -> what stands there in a sound tree.
SOUND = {"read": "texts", "heat": "self.args.temperature", "rank": "rank"}


def files(**choices: str) -> dict[str, str]:
    """A tree of TRL with what is at the places of :data:`SOUND`."""
    text = GRPO
    for name, part in (SOUND | choices).items():
        text = text.replace("{" + name + "}", part)
    scores = SCORES.replace("{unweighted}", "").replace("{reduced}", "pass").replace("{trains}", "")
    options = OPTIONS.lstrip("\n").rstrip(" ") + "        max_prompt_length: object = None\n"
    return {
        **trainer_files(),
        "trl/extras/__init__.py": "",
        "trl/extras/vllm_client.py": CLIENT,
        "trl/trainer/grpo_config.py": CONFIG.format(name="GRPOConfig") + options,
        "trl/trainer/grpo_scores.py": scores,
        "trl/trainer/grpo_trainer.py": text,
    }


def overlay() -> dict[str, str]:
    """The libraries of the tree."""
    found = trainer_overlay()
    return {**found, "transformers.py": found["transformers.py"] + TOKENIZER, "tokenizers.py": TOKENIZERS}
