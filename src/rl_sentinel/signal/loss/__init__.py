"""Policy losses: one module each, with ``loss(...)``; one number, by a denominator that is given.

Derivatives of any order, forward ones and those of ``torch.func`` are taken of one batch; under ``torch.vmap``, which
hides the numbers that a loss may have to refuse, it is refused itself.
"""
