"""Private set union, by Algorithm 1 of the paper or by the merged protocol.

It imports neither Ray nor the cluster code.
"""
