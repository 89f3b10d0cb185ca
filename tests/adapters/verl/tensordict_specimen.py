"""What the fakes of verl's queue use of tensordict, in a few lines."""

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
