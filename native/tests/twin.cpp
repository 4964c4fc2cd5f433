#include "twin.h"

#include <cfloat>
#include <cmath>

namespace torchcaps { namespace testing {
namespace {

const double kMinusInfinity = -INFINITY;

struct Field {
    const Case& c;
    Options o;
    double h;                        // the bandwidth
    size_t I, J;
    Doubles u, a;                    // [I][J][16], [I]
    Doubles v, log_r;                // [J][16], [I][J]

    double vote(size_t i, size_t j, int d) const { return u[(i * J + j) * 16 + size_t(d)]; }
    double safe_log(double x) const { return x < double(FLT_MIN) ? kMinusInfinity : std::log(x); }

    double distance(size_t i, size_t j, const double* centre) const {
        double sum = 0;
        for (int d = 0; d < 16; ++d) {
            const double z = vote(i, j, d) - centre[d];
            sum += o.distance == Distance::l1 ? std::fabs(z) : z * z;
        }
        return sum;
    }
    double k(double x, Kernel kernel) const {
        if (kernel == Kernel::gaussian) return std::exp(-x / 2);
        return kernel == Kernel::epanechnikov_clipped && x >= 1 ? 0 : 1 - x;
    }
    double k(double x) const { return k(x, o.kernel); }
    double log_k(double x) const { return o.kernel == Kernel::gaussian ? -x / 2 : safe_log(k(x)); }
    double log_slope(double x) const {
        if (o.kernel == Kernel::gaussian) return -x / 2;
        return o.kernel == Kernel::epanechnikov_clipped && x >= 1 ? kMinusInfinity : 0;
    }

    void normalise(const Doubles& state) {
        for (size_t i = 0; i < I; ++i) {
            double top = kMinusInfinity, sum = 0;
            for (size_t j = 0; j < J; ++j) top = std::max(top, state[i * J + j]);
            for (size_t j = 0; j < J; ++j) sum += top == kMinusInfinity ? 1 : std::exp(state[i * J + j] - top);
            for (size_t j = 0; j < J; ++j)
                log_r[i * J + j] = (top == kMinusInfinity ? 0 : state[i * J + j] - top) - std::log(sum);
        }
    }

    // Weights [I][J] and their sums; moves v.
    Doubles mean(const Doubles& log_w, Doubles& sums) {
        Doubles w(I * J);
        sums.assign(J, 0);
        for (size_t j = 0; j < J; ++j) {
            double top = kMinusInfinity;
            for (size_t i = 0; i < I; ++i)
                if (a[i] > 0) top = std::max(top, log_w[i * J + j]);
            if (top == kMinusInfinity) top = 0;
            for (size_t i = 0; i < I; ++i) sums[j] += w[i * J + j] = std::exp(std::min(log_w[i * J + j] - top, 30.0)) * a[i];
            if (!(sums[j] > 0)) continue;
            for (int d = 0; d < 16; ++d) {
                double sum = 0;
                for (size_t i = 0; i < I; ++i) sum += w[i * J + j] * vote(i, j, d);
                v[j * 16 + size_t(d)] = sum / sums[j];
            }
        }
        return w;
    }

    void frem() {
        Doubles state(I * J, 0), sums;
        for (int64_t t = 0; t < o.iterations; ++t) {
            normalise(state);
            mean(log_r, sums);
            for (size_t j = 0; j < J; ++j) {
                double top = kMinusInfinity, pi = 0;
                for (size_t i = 0; i < I; ++i) top = std::max(top, log_r[i * J + j]);
                if (top == kMinusInfinity) top = 0;
                for (size_t i = 0; i < I; ++i) pi += std::exp(log_r[i * J + j] - top) / double(I);
                for (size_t i = 0; i < I; ++i) {
                    const double x = distance(i, j, &v[j * 16]) / h;
                    state[i * J + j] = o.normalize == Normalize::softmax ? pi * std::exp(top) * k(x) : std::log(pi) + top + log_k(x);
                }
            }
        }
    }
    void frms() {
        Doubles r(I * J, 1.0 / double(J)), state(I * J), log_w, sums, x(I * J);
        for (int64_t t = 0; t < o.iterations; ++t) {
            for (size_t n = 0; n < I * J; ++n) state[n] = o.normalize == Normalize::softmax ? r[n] : safe_log(r[n]);
            normalise(state);
            log_w = log_r;
            for (size_t n = 0; t > 0 && n < I * J; ++n) log_w[n] += log_slope(x[n]);
            mean(log_w, sums);
            for (size_t i = 0; i < I; ++i)
                for (size_t j = 0; j < J; ++j) {
                    x[i * J + j] = distance(i, j, &v[j * 16]) / h;
                    r[i * J + j] += o.step * a[i] * k(x[i * J + j]);
                }
        }
    }
    void activation(const double* beta, const double* beta0, double* out) const {
        double total = 0, top = kMinusInfinity;
        for (size_t j = 0; j < J; ++j) {
            double centre[16], s = 0;
            for (int d = 0; d < 16; ++d) centre[d] = beta[j * 16 + size_t(d)] * v[j * 16 + size_t(d)];
            for (size_t i = 0; i < I; ++i)
                s += std::exp(log_r[i * J + j]) * a[i] * k((distance(i, j, centre) + beta0[j]) / o.activation_bandwidth, o.activation_kernel);
            out[j] = s;
            top = std::max(top, s);
        }
        for (size_t j = 0; j < J; ++j) total += out[j] = std::exp(out[j] - top);
        for (size_t j = 0; j < J; ++j) out[j] /= total;
    }
    void em(const double* beta_u, const double* beta_a, double* out) {
        std::fill(log_r.begin(), log_r.end(), -std::log(double(J)));
        Doubles variance(J * 16, 1.0), sums, logit(J), state(I * J);
        for (int64_t t = 0; t < o.iterations; ++t) {
            const Doubles w = mean(log_r, sums);
            for (size_t j = 0; j < J; ++j) {
                double mass = 0, cost = 0;
                for (size_t i = 0; i < I; ++i) mass += std::exp(log_r[i * J + j]) * a[i];
                for (size_t d = 0; d < 16; ++d) {
                    double sum = 0;
                    for (size_t i = 0; i < I; ++i) sum += w[i * J + j] * std::pow(vote(i, j, int(d)) - v[j * 16 + d], 2);
                    if (sums[j] > 0) variance[j * 16 + d] = std::max(sum / sums[j], double(o.variance_floor));
                    cost += (beta_u[j] + 0.5 * std::log(variance[j * 16 + d])) * mass;
                }
                logit[j] = o.final_lambda * (1 - std::pow(double(o.lambda_decay), double(t + 1))) * (beta_a[j] - cost);
                out[j] = 1 / (1 + std::exp(-logit[j]));
                for (size_t i = 0; i < I; ++i) {
                    double p = std::min(logit[j], 0.0) - std::log1p(std::exp(-std::fabs(logit[j])));
                    for (size_t d = 0; d < 16; ++d) {
                        const double z = vote(i, j, int(d)) - v[j * 16 + d], s = variance[j * 16 + d];
                        p -= 0.5 * (z * z / s + std::log(2 * M_PI * s));
                    }
                    state[i * J + j] = p;
                }
            }
            if (t + 1 < o.iterations) normalise(state);
        }
    }
};

}  // namespace

TwinInputs inputs_of(const Case& c) {
    const auto d = [](const Floats& f) { return Doubles(f.begin(), f.end()); };
    return {d(c.pose), d(c.activation), d(c.weight), d(c.first), d(c.second), {c.values.bandwidth}};
}

TwinOutputs twin_forward(const Case& c, const TwinInputs& in) {
    const OptionValues& v = c.values;
    const size_t I = size_t(c.inputs), J = size_t(c.outputs), fields = size_t(c.batch * c.out_height * c.out_width);
    TwinOutputs out = {Doubles(fields * J * 16), Doubles(fields * J)};
    Field f{c, make_options(v), in.bandwidth[0], I, J, Doubles(I * J * 16), Doubles(I), Doubles(J * 16), Doubles(I * J)};
    for (size_t n = 0; n < fields; ++n) {
        const int64_t column = int64_t(n) % c.out_width, row = int64_t(n) / c.out_width % c.out_height, image = int64_t(n) / c.out_width / c.out_height;
        for (size_t i = 0; i < I; ++i) {
            const int64_t capsule = int64_t(i) % c.capsules, place = int64_t(i) / c.capsules;
            const int64_t y = row * v.stride.first - v.padding.first + place / v.kernel_size.second;
            const int64_t x = column * v.stride.second - v.padding.second + place % v.kernel_size.second;
            const bool inside = y >= 0 && y < c.height && x >= 0 && x < c.width;
            const size_t at = inside ? size_t(((image * c.height + y) * c.width + x) * c.capsules + capsule) : 0;
            f.a[i] = inside ? in.activation[at] : 0;
            for (size_t j = 0; j < J; ++j)
                for (size_t r = 0; r < 4; ++r)
                    for (size_t s = 0; s < 4; ++s) {
                        double sum = c.offset[i * 16 + r * 4 + s];
                        for (size_t b = 0; inside && b < 4; ++b)
                            sum += in.pose[at * 16 + r * 4 + b] * in.weight[(i * J + j) * 16 + b * 4 + s];
                        f.u[(i * J + j) * 16 + r * 4 + s] = sum;
                    }
        }
        std::fill(f.v.begin(), f.v.end(), 0.0);
        double* activation = &out.activation[n * J];
        if (c.em()) f.em(in.first.data(), in.second.data(), activation);
        else {
            v.method == "frem" ? f.frem() : f.frms();
            f.activation(in.first.data(), in.second.data(), activation);
        }
        std::copy(f.v.begin(), f.v.end(), out.pose.begin() + int64_t(n * J * 16));
    }
    return out;
}

double twin_loss(const Case& c, const TwinInputs& in) {
    const TwinOutputs out = twin_forward(c, in);
    double loss = 0;
    for (size_t n = 0; n < out.pose.size(); ++n) loss += out.pose[n] * double(c.grad_out_pose[n]);
    for (size_t n = 0; n < out.activation.size(); ++n) loss += out.activation[n] * double(c.grad_out_activation[n]);
    return loss;
}

}}  // namespace
