"""Mutants of a framework's own path functions: faults planted into a copy of its tree, which is then audited."""
