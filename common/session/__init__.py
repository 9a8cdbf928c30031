"""Sessions with the peer: handshake, heartbeats, reconnecting, and the state of a run on disk."""
