"""Policy losses: one module each, with ``loss(...)``, which returns a scalar.

They support higher derivatives, forward mode and ``torch.func``, but not ``torch.vmap``, which hides the values that
argument checks read.
"""
