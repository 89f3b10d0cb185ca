"""Known findings that ship with this package. ``unbound/`` lists functions without a boundary; a file per framework."""
