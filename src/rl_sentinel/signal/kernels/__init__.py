"""Faster versions of formulas: blocks that fit a cache, gradients written by hand, operations on bits.

The formula in ``signal`` is the definition. A kernel runs where it is faster. Values and gradients are
equal up to rounding.
"""
