"""The configuration of a party: one module per section, and the loader that checks the file.

To find a key, open the module named after its section; `party_config.py` lists the sections.
"""
