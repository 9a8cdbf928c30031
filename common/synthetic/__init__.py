"""Synthetic data for the UIDs that a party lacks: stand-ins, labels, features and calibration."""
