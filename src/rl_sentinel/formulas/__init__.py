"""Formulas of papers and definitions of metrics, written without ``signal``: what laws compare frameworks with."""
