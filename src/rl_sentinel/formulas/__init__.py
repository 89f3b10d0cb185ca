"""Formulas of papers and definitions of metrics, independent of ``signal``; laws compare outputs with them.

A *reading* is one accepted interpretation of a formula or definition, where papers and implementations differ.
"""
