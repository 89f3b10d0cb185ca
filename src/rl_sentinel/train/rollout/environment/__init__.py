"""Environments, one module each: a module that defines ``Environment`` is one, as ``task`` describes it."""
