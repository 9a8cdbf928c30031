"""The status of a running party: status page, JSON, Prometheus metrics and health checks."""
