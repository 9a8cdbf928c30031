"""What protects the sizes that two parties reveal: noise on counts, its budget, limits on overlap.

Nothing here knows the network; the union and the stages apply it.
"""
