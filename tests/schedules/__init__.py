"""Deterministic simulation: both parties in one process, driven by one seed.

The parties run their real stages, sessions and protocols. Threads, time, network, disk and
randomness are simulated, so that a seed determines everything that happens, an hour of waiting
takes milliseconds, and a schedule that fails can be repeated exactly. `make test-schedules` runs
many seeds; docs/contributing.md says how to replay one.
"""
