"""Known findings that ship with this package, one file per framework."""
