"""Cases: small ones in a fixed order, random ones from a seed, transforms, shrinking."""
