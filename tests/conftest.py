"""Shape checks for the whole suite: every function of `trimtab.core` checks its jaxtyping annotations when called.

Installed here, before any test module is imported, because an import hook sees only what is imported after it.
"""

from jaxtyping import install_import_hook

install_import_hook("trimtab.core", "beartype.beartype")
