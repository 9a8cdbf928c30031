"""Simulations, the reproduction of the paper and learned attacks; must not import the API."""
