"""The command line: parse options, call the package, set the exit status."""
