import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("routing_contract")

# The tests' tensors are tiny: a second thread only waits for the first, and on a busy machine for a long time.
torch.set_num_threads(1)

# It registers a routing method when imported: only test_new_method.py wants that.
collect_ignore = ["cosine_routing.py"]

# The same examples in every run, so that a failure is the change's doing. `pytest --hypothesis-profile=search` looks
# for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None)
settings.load_profile("repeatable")
