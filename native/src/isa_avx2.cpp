// Compiled with AVX2 and FMA switched on, and called only where the CPU has both. Nothing but its own namespace may
// come out of this unit (tests/check_symbols.cmake): a shared inline function compiled here could replace the
// portable one when the linker picks.
#define TORCHCAPS_ISA avx2
#include "simd/vec_avx2.h"
#include "kernel/table.h"

namespace torchcaps {
using namespace avx2;
const Kernels avx2_kernels = {
    "avx2", Vec::W, kRows, scratch_size, pack, unpack, forward, backward,
    primary_forward, primary_backward, residual_sizes, residual_filters, residual_forward,
    residual_tile, residual_point, residual_weight,
};
}
