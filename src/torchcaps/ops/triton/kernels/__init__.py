"""The kernels, in Triton's language."""
