"""Search for counterexamples: small and random cases, transforms, comparison, shrinking."""
