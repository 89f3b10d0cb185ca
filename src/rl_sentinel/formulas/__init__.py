"""Formulas of papers and definitions of metrics, independent of ``signal``; laws compare frameworks with them."""
