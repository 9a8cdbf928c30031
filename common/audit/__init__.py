"""The privacy audit: attacks on what a party sees, their statistics, and the self-audit."""
