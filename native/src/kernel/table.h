// The functions of kernels.h for one instruction set.
#pragma once
#include "../kernels.h"
#include "em.h"
#include "frem.h"
#include "frms.h"
#include "primary.h"
#include "residual.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

template <class M>
static void run_forward(Field& f, int64_t begin, int64_t end) {
    M method(f);
    for (int64_t k = begin; k < end; ++k) forward_field(f, method, place_of(*f.problem, k));
}
template <class M>
static void run_backward(Field& f, int64_t begin, int64_t end) {
    M method(f);
    for (int64_t k = begin; k < end; ++k) backward_field(f, method, place_of(*f.problem, k));
    end_of_streams();
}

// A new method is a case here.
static void run(Field& f, bool backward, int64_t begin, int64_t end) {
    const Options& o = f.problem->options;
    const bool l1 = o.distance == Distance::l1;
    switch (o.method) {
        case Method::em: return backward ? run_backward<Em>(f, begin, end) : run_forward<Em>(f, begin, end);
        case Method::frem:
            if (l1) return backward ? run_backward<Frem<L1>>(f, begin, end) : run_forward<Frem<L1>>(f, begin, end);
            return backward ? run_backward<Frem<L2>>(f, begin, end) : run_forward<Frem<L2>>(f, begin, end);
        case Method::frms:
            if (l1) return backward ? run_backward<Frms<L1>>(f, begin, end) : run_forward<Frms<L1>>(f, begin, end);
            return backward ? run_backward<Frms<L2>>(f, begin, end) : run_forward<Frms<L2>>(f, begin, end);
    }
}

static size_t scratch_size(const Problem& p, bool backward) {
    Arena counter = {nullptr, 0};
    make_field(p, counter, backward);
    return counter.used;
}

static void forward(const Problem& p, const ParameterGradients& packed, float* scratch, int64_t begin, int64_t end) {
    Arena arena = {scratch, 0};
    Field f = make_field(p, arena, false);
    f.weight = packed.weight, f.first = packed.first, f.second = packed.second;
    run(f, false, begin, end);
}

static void backward(const Problem& p, const ParameterGradients& packed, const ParameterGradients& sinks, float* scratch,
                     int64_t begin, int64_t end) {
    Arena arena = {scratch, 0};
    Field f = make_field(p, arena, true);
    f.weight = packed.weight, f.first = packed.first, f.second = packed.second;
    f.sinks = sinks;
    run(f, true, begin, end);
}

// Where element (input i, output j, component d) of a weight lies among the packed ones; also for [j][d] with i = 0, rows = 1.
TC_INLINE int64_t packed_at(int64_t rows, int64_t i, int64_t j, int64_t d) {
    return ((j / Vec::W * rows + i) * kPoseSize + d) * Vec::W + j % Vec::W;
}
TC_INLINE int64_t padded_rows(const Problem& p) { return (p.inputs + kRows - 1) / kRows * kRows; }

static void pack(const Problem& p, float* weight, float* first, float* second) {
    for (int64_t i = 0; i < p.inputs; ++i)
        for (int64_t j = 0; j < p.outputs; ++j)
            for (int d = 0; d < kPoseSize; ++d)
                weight[packed_at(padded_rows(p), i, j, d)] = p.weight[(i * p.outputs + j) * kPoseSize + d];
    for (int64_t j = 0; j < p.outputs; ++j) {
        second[j] = p.second[j];
        if (p.options.method == Method::em)
            first[j] = p.first[j];
        else
            for (int d = 0; d < kPoseSize; ++d) first[packed_at(1, 0, j, d)] = p.first[j * kPoseSize + d];
    }
}

static void unpack(const Problem& p, const ParameterGradients& from, float* weight, float* first, float* second, float* bandwidth) {
    double sum = 0.0;
    for (int k = 0; k < Vec::W; ++k) sum += double(from.bandwidth[k]);
    *bandwidth = float(-sum / double(p.options.bandwidth));
    for (int64_t i = 0; i < p.inputs; ++i)
        for (int64_t j = 0; j < p.outputs; ++j)
            for (int d = 0; d < kPoseSize; ++d)
                weight[(i * p.outputs + j) * kPoseSize + d] = from.weight[packed_at(padded_rows(p), i, j, d)];
    for (int64_t j = 0; j < p.outputs; ++j) {
        second[j] = from.second[j];
        if (p.options.method == Method::em)
            first[j] = from.first[j];
        else
            for (int d = 0; d < kPoseSize; ++d) first[j * kPoseSize + d] = from.first[packed_at(1, 0, j, d)];
    }
}

}}  // namespace
