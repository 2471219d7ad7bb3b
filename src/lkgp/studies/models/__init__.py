"""Models that several comparators share."""
