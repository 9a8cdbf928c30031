"""Private set union, Algorithm 1 of the paper. It imports neither Ray nor the cluster code."""
