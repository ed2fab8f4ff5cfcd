"""One thread, and no deadline: the first call of a tensor function is slow."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("tensors", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("tensors")
