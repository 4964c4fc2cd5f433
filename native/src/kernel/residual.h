// The weight gradient of the residual block's convolution. Its output at a position depends on the inputs around it, so
//     weight[o][i][dy][dx] = sum over positions of grad[position][o] pose[position + (dy, dx)][i],
// dy and dx from -kernel / 2 on, as if the map went on in zeros beyond its border: such products are left out.
//
// A block of rows is packed first: 2 vectors of output channels or 6 input channels side by side, position by position. A
// tile of the gradient then stays in registers for the whole block; a tap (dy, dx) is an offset in the packed pose. Without
// the packing, positions lie a large power of two apart, and a cache holds few addresses of that kind.
#pragma once
#include "elementary.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

// 12 sums in 16 registers; the last one or two tiles have 4 inputs where 6 would not come out even: as fast, for 8 sums are
// just enough to keep the multiply-adds busy. 16 n is always such a sum.
constexpr int kTileInputs = 6, kSmallInputs = 4, kTileOutputs = 2 * Vec::W, kTile = kTileInputs * kTileOutputs;
constexpr int64_t kBlockPositions = 256;   // of a block, about: tiles of pose and gradient stay in the first-level cache
static_assert(kPoseSize % kTileOutputs == 0, "whole tiles of output channels");

struct ResidualLayout {
    int64_t taps, reach, halo;        // kernel * kernel; kernel / 2; rows that a tap can reach, of an image that may be lower
    int64_t inputs, large, outputs;   // tiles of input channels, those with 6 among them; tiles of output channels
    int64_t rows;                     // of a block
    int64_t pose_size, grad_size;     // floats of a packed tile
};

TC_INLINE ResidualLayout residual_layout(const Residual& p) {
    ResidualLayout l;
    l.taps = p.kernel * p.kernel, l.reach = p.kernel / 2, l.halo = l.reach < p.height ? l.reach : p.height - 1;
    const int64_t small = p.channels % kTileInputs == 0 ? 0 : p.channels % kTileInputs == 4 ? 1 : 2;
    l.large = (p.channels - small * kSmallInputs) / kTileInputs, l.inputs = l.large + small;
    l.outputs = p.channels / kTileOutputs;
    l.rows = kBlockPositions / p.width;
    if (l.rows > p.rows) l.rows = p.rows;
    if (l.rows < 1) l.rows = 1;
    // Whole vectors are written, so the last position of a tile may pass its end by less than a vector.
    l.pose_size = ((l.rows + 2 * l.halo) * p.width * kTileInputs + Vec::W + 15) / 16 * 16;
    l.grad_size = l.rows * p.width * kTileOutputs;
    return l;
}
// The first channel of an input tile.
TC_INLINE int64_t first_input(const ResidualLayout& l, int64_t tile) {
    return tile < l.large ? tile * kTileInputs : l.large * kTileInputs + (tile - l.large) * kSmallInputs;
}

static ResidualSizes residual_sizes(const Residual& p) {
    const ResidualLayout l = residual_layout(p);
    const size_t sums = size_t(l.outputs * l.inputs * l.taps * kTile + p.channels);
    return {l.outputs, l.rows, sums, size_t(l.outputs * l.grad_size + l.inputs * l.pose_size)};
}

// Positions [begin, end): [position][channel] -> [tile][position][kTileInputs].
TC_STEP void pack_pose(const Residual& p, const ResidualLayout& l, int64_t begin, int64_t end, float* packed) {
    constexpr int written = (kTileInputs + Vec::W - 1) / Vec::W * Vec::W;
    for (int64_t k = begin; k < end; ++k)
        for (int64_t i = 0; i < l.inputs; ++i) {
            const int64_t c = first_input(l, i), left = p.channels - c;
            const float* from = p.pose + k * p.channels + c;
            float* to = packed + i * l.pose_size + (k - begin) * kTileInputs;
            if (left >= written)
                for (int v = 0; v < written; v += Vec::W) storeu(to + v, loadu(from + v));
            else
                for (int64_t v = 0; v < left && v < kTileInputs; ++v) to[v] = from[v];
        }
}

// The same for the gradient, of output tiles [first, last) only.
TC_STEP void pack_grad(const Residual& p, const ResidualLayout& l, int64_t begin, int64_t end, int64_t first, int64_t last,
                       float* packed) {
    for (int64_t k = begin; k < end; ++k)
        for (int64_t o = first; o < last; ++o) {
            const float* from = p.grad + k * p.channels + o * kTileOutputs;
            float* to = packed + o * l.grad_size + (k - begin) * kTileOutputs;
            for (int v = 0; v < kTileOutputs; v += Vec::W) store(to + v, loadu(from + v));
        }
}

TC_INLINE void add_bias(const float* grad, int64_t positions, float* bias) {
    Vec sum[2] = {all(0.0f), all(0.0f)};
    for (int64_t k = 0; k < positions; ++k)
        for (int v = 0; v < 2; ++v) sum[v] = sum[v] + load(grad + k * kTileOutputs + v * Vec::W);
    for (int v = 0; v < 2; ++v) storeu(bias + v * Vec::W, loadu(bias + v * Vec::W) + sum[v]);
}

// One tap of one tile, of 6 or 4 inputs: `pose` and `grad` point at the block's first row, `y` is its place in its image.
template <int Inputs>
TC_STEP void add_tile(const Residual& p, int64_t rows, int64_t y, int64_t dy, int64_t dx, const float* pose, const float* grad,
                      float* sums) {
    const int64_t left = dx < 0 ? -dx : 0, right = dx < 0 ? p.width : p.width - dx;   // columns whose partner is in the map
    if (left >= right) return;
    Vec sum[Inputs][2];
#pragma GCC unroll 6
    for (int i = 0; i < Inputs; ++i) sum[i][0] = sum[i][1] = all(0.0f);
    for (int64_t r = 0; r < rows; ++r) {
        if (y + dy >= 0 && y + dy < p.height) {
            const float* g = grad + (r * p.width + left) * kTileOutputs;
            const float* x = pose + ((r + dy) * p.width + left + dx) * kTileInputs;
            for (int64_t c = left; c < right; ++c, g += kTileOutputs, x += kTileInputs) {
                const Vec g0 = load(g), g1 = load(g + Vec::W);
#pragma GCC unroll 6
                for (int i = 0; i < Inputs; ++i) {
                    const Vec by = broadcast(x + i);
                    sum[i][0] = fma(by, g0, sum[i][0]);
                    sum[i][1] = fma(by, g1, sum[i][1]);
                }
            }
        }
        if (++y == p.height) y = 0;
    }
#pragma GCC unroll 6
    for (int i = 0; i < Inputs; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
            float* at = sums + i * kTileOutputs + v * Vec::W;
            store(at, load(at) + sum[i][v]);
        }
}

// The sums are [output tile][input tile][tap][kTile], and behind them those of the bias.
static void residual_clear(const Residual& p, float* sums, int64_t first, int64_t last) {
    const ResidualLayout l = residual_layout(p);
    const int64_t of_a_tile = l.inputs * l.taps * kTile;
    float* bias = sums + l.outputs * of_a_tile;
    for (int64_t k = first * of_a_tile; k < last * of_a_tile; ++k) sums[k] = 0.0f;
    for (int64_t k = first * kTileOutputs; k < last * kTileOutputs; ++k) bias[k] = 0.0f;
}

// Adds rows [begin, end) of all images to the sums of output tiles [first, last).
static void residual_backward(const Residual& p, float* sums, float* scratch, int64_t begin, int64_t end, int64_t first,
                              int64_t last) {
    const ResidualLayout l = residual_layout(p);
    float *grad = scratch, *pose = scratch + l.outputs * l.grad_size;
    const int64_t of_a_tile = l.inputs * l.taps * kTile;
    float* bias = sums + l.outputs * of_a_tile;
    for (int64_t row = begin; row < end; row += l.rows) {
        const int64_t rows = end - row < l.rows ? end - row : l.rows;
        const int64_t above = row < l.halo ? row : l.halo;   // rows before the block that are packed, too
        const int64_t below = p.rows - row - rows < l.halo ? p.rows - row - rows : l.halo;
        pack_grad(p, l, row * p.width, (row + rows) * p.width, first, last, grad);
        pack_pose(p, l, (row - above) * p.width, (row + rows + below) * p.width, pose);
        for (int64_t o = first; o < last; ++o) {
            const float* of_outputs = grad + o * l.grad_size;
            float* tile = sums + o * of_a_tile;
            add_bias(of_outputs, rows * p.width, bias + o * kTileOutputs);
            for (int64_t i = 0; i < l.inputs; ++i) {
                const float* of_inputs = pose + i * l.pose_size + above * p.width * kTileInputs;
                for (int64_t dy = -l.reach; dy <= l.reach; ++dy)
                    for (int64_t dx = -l.reach; dx <= l.reach; ++dx, tile += kTile)
                        if (i < l.large) add_tile<kTileInputs>(p, rows, row % p.height, dy, dx, of_inputs, of_outputs, tile);
                        else add_tile<kSmallInputs>(p, rows, row % p.height, dy, dx, of_inputs, of_outputs, tile);
            }
        }
    }
}

// Sums of output tiles [first, last) -> weight [output][dy][dx][input] and bias.
static void residual_unpack(const Residual& p, const float* sums, float* weight, float* bias, int64_t first, int64_t last) {
    const ResidualLayout l = residual_layout(p);
    const float* of_bias = sums + l.outputs * l.inputs * l.taps * kTile;
    for (int64_t o = first * kTileOutputs; o < last * kTileOutputs; ++o) bias[o] = of_bias[o];
    for (int64_t o = first; o < last; ++o)
        for (int64_t tap = 0; tap < l.taps; ++tap)
            for (int64_t i = 0; i < l.inputs; ++i) {
                const float* from = sums + ((o * l.inputs + i) * l.taps + tap) * kTile;
                float* to = weight + (o * kTileOutputs * l.taps + tap) * p.channels + first_input(l, i);
                const int inputs = i < l.large ? kTileInputs : kSmallInputs;
                for (int64_t v = 0; v < kTileOutputs; ++v)
                    for (int c = 0; c < inputs; ++c) to[v * l.taps * p.channels + c] = from[c * kTileOutputs + v];
            }
}

}}  // namespace
