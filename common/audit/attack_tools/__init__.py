"""Computations that several attacks share; the attacks themselves are in `audit/attacks`."""
