"""For the whole suite: the shapes of `trimtab.core` are checked, and hypothesis tries the same examples every time.

The import hook makes every function of core check its jaxtyping annotations when called. It is installed here, before
any test module is imported, because it only sees what is imported after it.
"""

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from trimtab.runs.progress import set_quiet

install_import_hook("trimtab.core", "beartype.beartype")

# no deadline: the first call of a tensor function is slow
settings.register_profile("trimtab", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("trimtab")

# Models here are tiny: a second thread only waits, and the suite runs one process a core.
torch.set_num_threads(1)
set_quiet(True)
