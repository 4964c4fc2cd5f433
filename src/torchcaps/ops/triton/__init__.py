"""Fused Triton kernels for routing on GPUs. Importing this does not import triton; launching a kernel does."""
