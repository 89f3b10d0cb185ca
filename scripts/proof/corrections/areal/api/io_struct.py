# Corrections of areal/api/io_struct.py (1.0.4).
# - A server's reply with a token that has no finite log-prob is refused.

import math

_generation_result = HttpGenerationResult.__init__


def _whole_result(self, *args, **fields):
    _generation_result(self, *args, **fields)
    if not all(value is not None and math.isfinite(value) for value in self.output_logprobs):
        raise ValueError("the reply has log-probs that are not finite numbers")
    if len(self.output_logprobs) != len(self.output_tokens):
        raise ValueError("the reply does not have one log-prob per token")


HttpGenerationResult.__init__ = _whole_result
