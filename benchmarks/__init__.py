"""Our functions beside the real functions of released frameworks, in one run: see README.md."""
