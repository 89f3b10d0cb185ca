# Corrections of trl/trainer/utils.py (1.16.0): what corrections of the trainers share.
# - A logged mean carries the number of values that it counts, and the means of micro-batches are pooled by it.
# - The reference of a model that is passed as an object has the weights of this model.

import functools
import inspect


class CountedMean(float):
    def __new__(cls, mean, count):
        made = super().__new__(cls, mean)
        made.count = float(count)
        return made


def _pool(values):
    parts = [value for value in values if isinstance(value, CountedMean)]
    if parts:
        count = sum(part.count for part in parts)
        total = sum(part * part.count for part in parts if part.count)
        values[:] = [CountedMean(total / count if count else parts[-1], count)]


def with_pooled_means(compute_loss):
    @functools.wraps(compute_loss)
    def corrected(self, *args, **more):
        result = compute_loss(self, *args, **more)
        for logged in self._metrics.values():
            for values in logged.values():
                _pool(values)
        return result

    return corrected


def with_copied_reference(init):
    names = inspect.signature(init)

    @functools.wraps(init)
    def corrected(self, *args, **more):
        init(self, *args, **more)
        given = names.bind(self, *args, **more).arguments
        if self.ref_model is not None and given.get("ref_model") is None and not isinstance(given["model"], str):
            policy, reference = map(self.accelerator.unwrap_model, (given["model"], self.ref_model))
            reference.load_state_dict(policy.state_dict())

    return corrected
