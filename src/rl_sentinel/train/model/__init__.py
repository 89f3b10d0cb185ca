"""Models and text: the policy, its tokenizer, and the prefill of prompts."""
