"""Where the code of a target comes from: the package index, a folder, or a git revision."""
