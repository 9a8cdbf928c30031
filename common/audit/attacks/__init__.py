"""The attacks of the privacy audit, one module per attack.

To add one, add a module that decorates its function with `passive_attack` or `active_attack`. Every
module of this package is imported here, so that both registries are complete.
"""

from importlib import import_module
from pkgutil import iter_modules

from florist.common.audit.attack_registry import ACTIVE_ATTACKS, PASSIVE_ATTACKS, Attack

__all__ = ["ACTIVE_ATTACKS", "PASSIVE_ATTACKS", "Attack"]

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
