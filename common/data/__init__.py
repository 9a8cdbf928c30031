"""Reads, checks and preprocesses the parties' tables; knows nothing of the network or of models."""
