"""What routing costs, measured on the machine at hand: the parts of ``torchcaps bench``."""
