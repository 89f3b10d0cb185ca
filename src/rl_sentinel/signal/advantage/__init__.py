"""Advantage estimators: one module each, with ``advantages(...)``; one number per row or token."""
