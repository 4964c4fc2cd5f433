// The residual block's convolution and its gradients, in tiles (winograd.h): what is a convolution in the map is, at each of
// the 36 points, a product of matrices,
//     output [tile][o] = sum over i of input [tile][i] filter [i][o],
// and so are the gradients: that of the input with the filter's axes exchanged and its taps reversed, that of the filter
// a sum over the tiles. Beyond its border the map goes on in zeros.
#pragma once
#include "winograd.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

// A panel of output channels by six rows: 12 sums in 16 registers.
constexpr int kPanel = 2 * Vec::W, kSumRows = 6, kSmallRows = 4;
constexpr int64_t kChunk = 64;           // output channels whose products are kept before they are transformed
constexpr int64_t kLine = 16;            // floats of a cache line
constexpr int64_t kTileBudget = 110 << 10, kFewTiles = 24, kManyTiles = 192;   // the budget in floats
static_assert(kPoseSize % kPanel == 0 && kChunk % kPanel == 0 && kLine % Vec::W == 0, "whole panels, aligned rows");
static_assert(kFewTiles % kSumRows == 0 && kManyTiles % kSumRows == 0, "whole rows of sums");

// Rows and points are an odd number of cache lines apart: a power of two apart, they would share a few places of a cache.
TC_INLINE int64_t row_stride(int64_t channels) { return (channels / kLine | 1) * kLine; }
TC_INLINE int64_t point_stride(int64_t tiles, int64_t row) { return (tiles * row / kLine | 1) * kLine; }

struct TileGrid {
    int64_t side, down, across, tiles;   // outputs a side; tiles in an image, in all images
    int64_t stride;                      // from tile to tile, of their channels at one point
};
TC_INLINE TileGrid tile_grid(const Residual& p) {
    TileGrid g;
    g.side = kSide + 1 - p.kernel;
    g.down = (p.height - 1) / g.side + 1, g.across = (p.width - 1) / g.side + 1;
    g.tiles = p.batch * g.down * g.across;
    g.stride = row_stride(p.channels);
    return g;
}

static ResidualSizes residual_sizes(const Residual& p) {
    const TileGrid g = tile_grid(p);
    // Forward, a thread's tiles should stay in its cache, but be enough for each filter that is read; backward they are
    // shared by all threads, and many, since the sums are read and written once for them.
    int64_t block = kTileBudget / (kPoints * g.stride) / kSumRows * kSumRows;
    block = block < kFewTiles ? kFewTiles : block > kManyTiles ? kManyTiles : block;
    ResidualSizes s;
    s.tiles = g.tiles, s.panels = p.channels / kPanel, s.points = kPoints;
    s.block = block, s.least = kSumRows, s.shared_block = kManyTiles;
    s.filters = size_t(kPoints * p.channels * p.channels);
    s.scratch = size_t(kPoints * (point_stride(block, g.stride) + point_stride(block, row_stride(kChunk))));
    s.shared = size_t(kPoints * point_stride(kManyTiles, g.stride));
    return s;
}

// Where a filter's row of a panel begins: [point][panel][input channel][kPanel].
TC_INLINE int64_t filter_at(const Residual& p, int64_t point, int64_t panel, int64_t input) {
    return ((point * (p.channels / kPanel) + panel) * p.channels + input) * kPanel;
}

// The weight [output][input][tap] at the points: for the convolution, or for the gradient of its input, with outputs and
// inputs exchanged and taps reversed.
template <int K>
TC_STEP void filters_of(const Residual& p, float* filters, int64_t panel) {
    const int64_t per_output = (p.reversed ? 1 : p.channels) * K * K, per_input = (p.reversed ? p.channels : 1) * K * K;
    float taps[K * K][Vec::W];
    for (int64_t o = 0; o < kPanel; o += Vec::W)
        for (int64_t i = 0; i < p.channels; ++i) {
            const float* from = p.weight + (panel * kPanel + o) * per_output + i * per_input;
            for (int r = 0; r < Vec::W; ++r)
                for (int tap = 0; tap < K * K; ++tap) taps[p.reversed ? K * K - 1 - tap : tap][r] = from[r * per_output + tap];
            transform<EvaluateFilter<K>>([&](int tap) { return loadu(taps[tap]); },
                                         [&](int point, Vec x) { store(filters + filter_at(p, point, panel, i) + o, x); });
        }
}
static void residual_filters(const Residual& p, float* filters, int64_t panel) {
    p.kernel == 3 ? filters_of<3>(p, filters, panel) : filters_of<5>(p, filters, panel);
}

// Offsets in a map of the positions of a tile, `side` of them a side, from `before` positions before its first output on; -1
// where there is none.
TC_INLINE void positions_of(const Residual& p, const TileGrid& g, int64_t tile, int64_t side, int64_t before, int64_t* at) {
    const int64_t image = tile / (g.down * g.across), place = tile % (g.down * g.across);
    const int64_t top = place / g.across * g.side - before, left = place % g.across * g.side - before;
    for (int64_t y = top; y < top + side; ++y)
        for (int64_t x = left; x < left + side; ++x)
            *at++ = y < 0 || y >= p.height || x < 0 || x >= p.width ? -1 : ((image * p.height + y) * p.width + x) * p.channels;
}

// A tile of a map at the points, which are `apart` floats apart; T is Interpolate or Evaluate<side>.
template <class T>
TC_STEP void to_points(const Residual& p, const TileGrid& g, const float* map, int64_t tile, int64_t before, float* to,
                       int64_t apart) {
    int64_t at[kPoints];
    positions_of(p, g, tile, T::from, before, at);
    for (int64_t c = 0; c < p.channels; c += Vec::W)
        transform<T>([&](int k) { return at[k] < 0 ? all(0.0f) : loadu(map + at[k] + c); },
                     [&](int point, Vec x) { store(to + point * apart + c, x); });
}

// sum[r] += each of `count` values of row r times a vector pair of the panel.
template <int Rows>
TC_INLINE void add_products(Vec (&sum)[Rows][2], const float* row, int64_t apart, int64_t step, const float* panel,
                            int64_t panel_step, int64_t count) {
    for (int64_t k = 0; k < count; ++k, row += step, panel += panel_step) {
        const Vec first = load(panel), second = load(panel + Vec::W);
#pragma GCC unroll 6
        for (int r = 0; r < Rows; ++r) {
            const Vec by = broadcast(row + r * apart);
            sum[r][0] = fma(by, first, sum[r][0]);
            sum[r][1] = fma(by, second, sum[r][1]);
        }
    }
}
template <int Rows>
TC_INLINE void store_sums(const Vec (&sum)[Rows][2], float* to, int64_t stride) {
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) store(to + r * stride, sum[r][0]), store(to + r * stride + Vec::W, sum[r][1]);
}

// kSumRows tiles x a panel, at one point.
TC_STEP void multiply(const float* input, int64_t stride, const float* filter, int64_t channels, float* output, int64_t out_stride) {
    Vec sum[kSumRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kSumRows; ++r) sum[r][0] = sum[r][1] = all(0.0f);
    add_products(sum, input, stride, 1, filter, kPanel, channels);
    store_sums(sum, output, out_stride);
}

// Products at the points -> the map, with the bias and, where it skips the convolution, the input added.
template <int Side>
TC_STEP void to_map(const Residual& p, const TileGrid& g, const float* products, int64_t apart, int64_t tile, int64_t channel,
                    int64_t channels) {
    int64_t at[Side * Side];
    positions_of(p, g, tile, Side, 0, at);
    for (int64_t c = 0; c < channels; c += Vec::W) {
        const Vec bias = loadu(p.bias + channel + c);
        transform<Collect<Side>>([&](int point) { return load(products + point * apart + c); },
                                 [&](int k, Vec x) {
                                     if (at[k] < 0) return;
                                     const Vec y = x + bias;
                                     storeu(p.output + at[k] + channel + c,
                                            p.skip ? y + loadu(p.input + at[k] + channel + c) : y);
                                 });
    }
}

template <int Side>
TC_STEP void forward_tiles(const Residual& p, const float* filters, float* scratch, int64_t begin, int64_t end) {
    const TileGrid g = tile_grid(p);
    const int64_t block = residual_sizes(p).block, apart = point_stride(block, g.stride);
    const int64_t out_stride = row_stride(kChunk), out_apart = point_stride(block, out_stride);
    float *inputs = scratch, *products = scratch + kPoints * apart;
    const int64_t tiles = end - begin, rows = (tiles + kSumRows - 1) / kSumRows * kSumRows;
    for (int64_t t = 0; t < tiles; ++t) to_points<Interpolate>(p, g, p.input, begin + t, p.kernel / 2, inputs + t * g.stride, apart);
    for (int64_t point = 0; point < kPoints; ++point)   // rows that are multiplied, but not used
        for (int64_t k = tiles * g.stride; k < rows * g.stride; ++k) inputs[point * apart + k] = 0.0f;
    for (int64_t channel = 0; channel < p.channels; channel += kChunk) {
        const int64_t channels = p.channels - channel < kChunk ? p.channels - channel : kChunk;
        for (int64_t point = 0; point < kPoints; ++point)
            for (int64_t o = 0; o < channels; o += kPanel)
                for (int64_t t = 0; t < rows; t += kSumRows)
                    multiply(inputs + point * apart + t * g.stride, g.stride,
                             filters + filter_at(p, point, (channel + o) / kPanel, 0), p.channels,
                             products + point * out_apart + t * out_stride + o, out_stride);
        for (int64_t t = 0; t < tiles; ++t)
            to_map<Side>(p, g, products + t * out_stride, out_apart, begin + t, channel, channels);
    }
}
static void residual_forward(const Residual& p, const float* filters, float* scratch, int64_t begin, int64_t end) {
    p.kernel == 3 ? forward_tiles<4>(p, filters, scratch, begin, end) : forward_tiles<2>(p, filters, scratch, begin, end);
}

// Of a shared block that begins with tile `begin`: input and gradient of one tile at the points.
static void residual_tile(const Residual& p, float* inputs, float* grads, int64_t begin, int64_t tile) {
    const TileGrid g = tile_grid(p);
    const int64_t at = (tile - begin) * g.stride, apart = point_stride(kManyTiles, g.stride);
    to_points<Interpolate>(p, g, p.input, tile, p.kernel / 2, inputs + at, apart);
    if (p.kernel == 3) to_points<Evaluate<4>>(p, g, p.grad, tile, 0, grads + at, apart);
    else to_points<Evaluate<2>>(p, g, p.grad, tile, 0, grads + at, apart);
}

// Rows (input channels) x a panel, summed over the tiles.
template <int Rows>
TC_STEP void add_tiles(const float* input, const float* grad, int64_t stride, int64_t tiles, float* sums) {
    Vec sum[Rows][2];
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) sum[r][0] = load(sums + r * kPanel), sum[r][1] = load(sums + r * kPanel + Vec::W);
    add_products(sum, input, 1, stride, grad, stride, tiles);
    store_sums(sum, sums, kPanel);
}

// Adds a shared block of `tiles` tiles to the sums of one point.
static void residual_point(const Residual& p, const float* inputs, const float* grads, int64_t tiles, float* sums, int64_t point) {
    const TileGrid g = tile_grid(p);
    const int64_t apart = point_stride(kManyTiles, g.stride);
    const float *input = inputs + point * apart, *grad = grads + point * apart;
    // 16 n channels as sixes and up to two fours
    const int64_t fours = p.channels % kSumRows == 0 ? 0 : p.channels % kSumRows == 4 ? 1 : 2;
    const int64_t sixes = p.channels - fours * kSmallRows;
    for (int64_t panel = 0; panel < p.channels / kPanel; ++panel, grad += kPanel) {
        float* to = sums + filter_at(p, point, panel, 0);
        for (int64_t i = 0; i < sixes; i += kSumRows)
            add_tiles<kSumRows>(input + i, grad, g.stride, tiles, to + i * kPanel);
        for (int64_t i = sixes; i < p.channels; i += kSmallRows)
            add_tiles<kSmallRows>(input + i, grad, g.stride, tiles, to + i * kPanel);
    }
}

// Sums -> the gradient of the weight [output][input][tap], for one panel of outputs.
template <int K>
TC_STEP void weight_of(const Residual& p, const float* sums, float* weight, int64_t panel) {
    float taps[K * K][Vec::W];
    for (int64_t o = 0; o < kPanel; o += Vec::W)
        for (int64_t i = 0; i < p.channels; ++i) {
            transform<CollectFilter<K>>([&](int point) { return load(sums + filter_at(p, point, panel, i) + o); },
                                        [&](int tap, Vec x) { storeu(taps[tap], x); });
            for (int r = 0; r < Vec::W; ++r) {
                float* to = weight + ((panel * kPanel + o + r) * p.channels + i) * K * K;
                for (int tap = 0; tap < K * K; ++tap) to[tap] = taps[tap][r];
            }
        }
}
static void residual_weight(const Residual& p, const float* sums, float* weight, int64_t panel) {
    p.kernel == 3 ? weight_of<3>(p, sums, weight, panel) : weight_of<5>(p, sums, weight, panel);
}

}}  // namespace
