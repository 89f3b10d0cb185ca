"""Pure functions of the training signal: tensors in, new tensors out."""
