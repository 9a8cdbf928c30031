"""A description of this installation and one party's setup, for a support request."""
