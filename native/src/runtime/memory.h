// Memory of a call, and its partition among threads.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace torchcaps {

// All memory of a call is taken before the threads start, so they have nothing to throw.
class Buffer {
public:
    explicit Buffer(size_t floats)
        : data_(static_cast<float*>(::operator new(std::max<size_t>(floats, 1) * sizeof(float), alignment))) {}
    ~Buffer() { ::operator delete(data_, alignment); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    float* data() { return data_; }

private:
    static constexpr std::align_val_t alignment{64};
    float* data_;
};

inline size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Parts are taken as threads come free: several a thread even out a core that is busy otherwise.
constexpr int kPartsOfAThread = 8;

struct Range {
    int64_t begin, end;
};
inline Range part(int64_t count, int64_t parts, int64_t k) {
    const int64_t size = count / parts, rest = count % parts;
    const int64_t begin = k * size + std::min(k, rest);
    return {begin, begin + size + (k < rest ? 1 : 0)};
}

// For an output that is about to be written for the first time: large pages, where the system has them. Most of the cost
// of a fresh map is that of its small ones.
void prefer_large_pages(float* data, size_t floats);

// Adds the parts' sums to those of part 0, part by part: the same bits for the same number of parts.
void add_parts(float* sums, size_t size, int64_t parts, int threads);

}  // namespace torchcaps
