"""Evidence of a run: a record of each stage that both parties sign with their TLS keys."""
