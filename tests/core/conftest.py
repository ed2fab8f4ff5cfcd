"""One thread: the tensors are tiny."""

import torch

torch.set_num_threads(1)
