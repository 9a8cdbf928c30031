"""The merged protocol: the same union with fewer exponentiations. docs/concepts/merged-union.md."""
