"""Known findings that ship with this package; ``unbound/`` lists functions without a boundary. One file per framework."""
