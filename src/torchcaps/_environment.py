"""What PyTorch's OpenMP runtime reads from the environment as it is loaded; imported before all that imports torch."""

import os
import sys

WAITING = "OMP_WAIT_POLICY"
KEEP = "TORCHCAPS_KEEP_ENVIRONMENT"  # set to anything, it keeps torchcaps from setting other variables

# PyTorch's threads spin for some milliseconds after each operation, on the cores that routing's threads then want.
# What the user has set stays; so does GOMP_SPINCOUNT, which the runtime prefers to this variable.
SET_HERE = "torch" not in sys.modules and WAITING not in os.environ and not os.environ.get(KEEP)
if SET_HERE:
    os.environ[WAITING] = "PASSIVE"
