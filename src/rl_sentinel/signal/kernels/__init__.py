"""Faster versions of formulas: blocks that fit a cache, gradients written by hand, operations on bits.

The formula in ``signal`` is the definition. A kernel runs where it is faster and gives equal values and gradients.
"""
