"""Known findings that ship with this package, and in ``unbound/`` functions without a boundary; a file per framework."""
