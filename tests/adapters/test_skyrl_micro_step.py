"""One micro-batch of SkyRL's worker, in both forms, in words of our own."""

from typing import Any

from rl_sentinel.adapters.skyrl.micro_step import micro_step


class Batches:
    """A double of the iterator over micro-batches."""

    @staticmethod
    def batch_to_experience(batch: str) -> str:
        """The micro-batch in another form."""
        return f"experience of {batch}"


def test_release_that_divides_by_the_number_of_parts() -> None:
    class Worker:
        def training_step(self, batch: str, step: int, number: int, parts: int) -> dict[str, Any]:
            return {"seen": (batch, step, number, parts)}

    trained: dict[str, Any] = {**micro_step(Worker(), Batches, "batch", 1, 4)}
    assert trained == {"seen": ("batch", 0, 1, 4)}


def test_release_that_is_given_a_weight() -> None:
    class Worker:
        def forward_backward(self, experience: str, microbatch_weight: float) -> dict[str, Any]:
            return {"seen": (experience, microbatch_weight)}

    trained: dict[str, Any] = {**micro_step(Worker(), Batches, "batch", 1, 4)}
    assert trained == {"seen": ("experience of batch", 0.25)}
