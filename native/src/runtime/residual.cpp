#include "residual.h"

#include <mutex>
#include <vector>

#include "dispatch.h"
#include "memory.h"
#include "thread_pool.h"

namespace torchcaps {
namespace {

constexpr int64_t kSumsOfAThread = 2 << 20, kMostSums = 64 << 20;   // bytes
constexpr int64_t kChainsOfAThread = 2;

// Parts of the rows, each with sums of its own, and in a part groups of output tiles: a chain is one group of one part, and
// consists of pieces of its rows. Groups cost more work (each packs the pose), parts cost memory.
struct Partition {
    int64_t parts, groups, pieces;
    Partition(const Residual& p, const ResidualSizes& sizes, int64_t threads) {
        const int64_t room = std::min(threads * kSumsOfAThread, kMostSums) / int64_t(sizes.sums * sizeof(float));
        const int64_t chains = threads == 1 ? 1 : threads * kChainsOfAThread;
        parts = std::max<int64_t>(1, std::min({chains, room, p.rows}));
        groups = std::min((chains + parts - 1) / parts, sizes.tiles);
        pieces = threads == 1 ? 1 : kPartsOfAThread;
    }
};

// Hands out the pieces. Those of a chain come one after the other, as they are added to the same sums: the same bits, no
// matter which thread does what. There are more chains than threads, so that all have work till the end even if one core is
// busy otherwise: OpenMP's threads wait for some milliseconds in a loop after whatever PyTorch did before.
class Turns {
public:
    Turns(int64_t chains, int64_t pieces) : chains_(size_t(chains)), pieces_(pieces) {}

    struct Turn {
        int64_t chain, piece;
    };
    // The next piece of the chain that has most left and that nobody works on; false if there is none.
    bool take(Turn& turn) {
        std::lock_guard<std::mutex> lock(mutex_);
        turn = {-1, pieces_};
        for (size_t k = 0; k < chains_.size(); ++k)
            if (!chains_[k].taken && chains_[k].next < turn.piece) turn = {int64_t(k), chains_[k].next};
        if (turn.chain < 0) return false;
        chains_[size_t(turn.chain)] = {turn.piece + 1, true};
        return true;
    }
    void done(const Turn& turn) {
        std::lock_guard<std::mutex> lock(mutex_);
        chains_[size_t(turn.chain)].taken = false;
    }

private:
    struct Chain {
        int64_t next = 0;
        bool taken = false;
    };
    std::mutex mutex_;
    std::vector<Chain> chains_;
    int64_t pieces_;
};

// The rows of a piece: whole blocks but for the last.
Range rows_of(const Residual& p, const Partition& of, int64_t block, int64_t index, int64_t piece) {
    const Range rows = part(p.rows, of.parts, index);
    const Range blocks = part((rows.end - rows.begin + block - 1) / block, of.pieces, piece);
    return {rows.begin + blocks.begin * block, std::min(rows.end, rows.begin + blocks.end * block)};
}

}  // namespace

Residual check_residual(const ResidualArrays& a) {
    Residual p = {};
    check_dimensions(a.pose, 4, "pose");
    check_dimensions(a.grad_weight, 4, "grad_weight");
    const int64_t batch = a.pose.shape[0];
    p.height = a.pose.shape[1], p.width = a.pose.shape[2], p.channels = a.pose.shape[3], p.kernel = a.grad_weight.shape[1];
    if (batch < 0 || p.height < 1 || p.width < 1) refuse("pose: only the batch may be empty");
    if (p.channels < 1 || p.channels % kPoseSize != 0)
        refuse("pose: got " + std::to_string(p.channels) + " channels, wanted a multiple of " + std::to_string(kPoseSize));
    if (p.kernel < 1 || p.kernel % 2 == 0)
        refuse("grad_weight: got kernel size " + std::to_string(p.kernel) + ", wanted an odd one");
    p.rows = product(batch, p.height);
    const Shape like = {batch, p.height, p.width, p.channels};
    check_dense(a.pose, like, "pose");
    check_dense(a.grad, like, "grad");
    check_dense(a.grad_weight, {p.channels, p.kernel, p.kernel, p.channels}, "grad_weight");
    check_dense(a.grad_bias, {p.channels}, "grad_bias");
    // Sums and scratch are the weight and some rows with what surrounds them, padded; 64 is more than padding can add.
    product(product(product(p.channels, p.channels), product(p.kernel, p.kernel)), 64 * sizeof(float));
    product(product(product(p.width, p.channels), std::min<int64_t>(p.rows, 256) + p.kernel), 64 * sizeof(float));
    p.pose = a.pose.data, p.grad = a.grad.data;
    return p;
}

void run_residual_backward(const Residual& p, float* grad_weight, float* grad_bias, int threads) {
    const Kernels& kernels = kernels_in_use();
    const ResidualSizes sizes = kernels.residual_sizes(p);
    const Partition of(p, sizes, threads);
    const int workers = int(std::min<int64_t>(threads, of.parts * of.groups));
    const size_t size = round_up(sizes.sums, 16), scratch_size = round_up(sizes.scratch, 16);
    Buffer sums(size * size_t(of.parts)), scratch(scratch_size * size_t(workers));
    Turns turns(of.parts * of.groups, of.pieces);
    auto job = [&](int64_t worker) {
        for (Turns::Turn turn; turns.take(turn); turns.done(turn)) {
            const int64_t index = turn.chain / of.groups;
            const Range rows = rows_of(p, of, sizes.rows, index, turn.piece);
            const Range tiles = part(sizes.tiles, of.groups, turn.chain % of.groups);
            float *own = sums.data() + size_t(index) * size, *work = scratch.data() + size_t(worker) * scratch_size;
            if (turn.piece == 0) kernels.residual_clear(p, own, tiles.begin, tiles.end);
            kernels.residual_backward(p, own, work, rows.begin, rows.end, tiles.begin, tiles.end);
        }
    };
    parallel_for(workers, workers, job);
    add_parts(sums.data(), size, of.parts, threads);
    auto unpack = [&](int64_t k) { kernels.residual_unpack(p, sums.data(), grad_weight, grad_bias, k, k + 1); };
    parallel_for(sizes.tiles, threads, unpack);
}

}  // namespace torchcaps
