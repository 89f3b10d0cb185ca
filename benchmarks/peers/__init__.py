"""Released frameworks, each with its own functions on the inputs of a comparison.

A module has ``RELEASE``, ``load()`` and ``PARTS``: part -> a function of the inputs.
"""
