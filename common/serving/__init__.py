"""Serving, as far as both parties share it: the handshake, hiding groups and the served table."""
