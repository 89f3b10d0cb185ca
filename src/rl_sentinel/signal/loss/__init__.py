"""Policy losses: one module each, with ``loss(...)``; one number, by a denominator that is given."""
