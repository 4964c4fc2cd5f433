import torch

# The tests' tensors are tiny: a second thread only waits for the first, and on a busy machine for a long time.
torch.set_num_threads(1)
