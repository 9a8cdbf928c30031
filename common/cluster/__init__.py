"""Runs a party's private set union on its own Ray cluster, behind the interfaces of `psu`."""
