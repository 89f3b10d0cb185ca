"""What the fakes of verl's queue use of tensordict, in a few lines, and the class of the trainer."""

TENSORDICT = """
    import torch

    class NonTensorStack(list):
        def __init__(self, *values):
            super().__init__(values)

        def tolist(self):
            return list(self)

    class TensorDict(dict):
        def __init__(self, fields, batch_size=None):
            super().__init__(fields)

        def set_non_tensor(self, name, value):
            self[name] = value

        def to_padded_tensor(self):
            return {n: x.to_padded_tensor(0.0) if isinstance(x, torch.Tensor) else x for n, x in self.items()}
"""

#: The trainer of which there is an instance, in trees whose base class has abstract methods.
SYNC = """
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    class PPOTrainerSync(PPOTrainer):
        def on_step_end(self):
            pass
"""
