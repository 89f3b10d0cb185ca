"""Adapters convert between the neutral batch and a framework's arguments; the framework computes."""
