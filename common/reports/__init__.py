"""Self-contained HTML reports of finished stages; the only package of `common` with matplotlib."""
