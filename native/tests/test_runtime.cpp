// Threads, determinism, fork, vector paths, empty batches.
#include <cmath>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

namespace torchcaps { namespace testing {
namespace {

bool same(const Gradients& a, const Gradients& b) {
    return a.pose == b.pose && a.activation == b.activation && a.weight == b.weight && a.first == b.first && a.second == b.second &&
           a.bandwidth == b.bandwidth;
}
void check_close(const Floats& a, const Floats& b, const char* what) {
    float largest = 1e-6f;
    for (float x : b) largest = std::max(largest, std::fabs(x));
    for (size_t n = 0; n < a.size(); ++n)
        CHECK(std::fabs(a[n] - b[n]) <= 1e-3f * largest, "%s differs: %g and %g", what, double(a[n]), double(b[n]));
}

Case sample(bool overlap) {
    Case c;
    c.batch = 5, c.height = 6, c.width = 6;
    c.values.kernel_size = overlap ? Pair{3, 3} : Pair{2, 2};
    c.values.stride = overlap ? Pair{1, 1} : Pair{2, 2};
    c.values.bandwidth = c.values.activation_bandwidth = 20.0;
    c.values.iterations = 3;
    c.prepare();
    return c;
}

void test_determinism() {
    for (bool overlap : {false, true}) {
        Case c = sample(overlap);
        const Outputs one = c.forward(1);
        const Gradients single = c.backward(one, 1);
        for (int threads : {1, 2, 3, 4, 16}) {
            const Outputs o = c.forward(threads);
            CHECK(o.pose == one.pose && o.activation == one.activation, "%d threads, outputs", threads);
            const Gradients g = c.backward(o, threads);
            for (int n = 0; n < 3; ++n) CHECK(same(g, c.backward(o, threads)), "%d threads, gradients", threads);
            CHECK(g.pose == single.pose && g.activation == single.activation, "%d threads, input gradients", threads);
            check_close(g.weight, single.weight, "weight gradient");
            check_close(g.bandwidth, single.bandwidth, "bandwidth gradient");
        }
    }
}

void test_callers_at_once() {
    Case c = sample(true);
    const Outputs expected = c.forward(3);
    const Gradients gradients = c.backward(expected, 3);
    std::vector<std::thread> callers;
    for (int n = 0; n < 4; ++n)
        callers.emplace_back([&] {
            Case own = sample(true);
            for (int k = 0; k < 5; ++k) {
                const Outputs o = own.forward(3);
                CHECK(o.pose == expected.pose, "forward from several threads");
                CHECK(same(own.backward(o, 3), gradients), "backward from several threads");
            }
        });
    for (std::thread& caller : callers) caller.join();
}

void test_fork() {
    Case c = sample(false);
    const Outputs expected = c.forward(3);   // the pool is running
    const pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        alarm(20);   // a hang becomes a failure
        const bool equal = c.forward(3).pose == expected.pose && c.forward(2).pose == expected.pose;
        _exit(equal ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child: status %d", status);
    CHECK(c.forward(3).pose == expected.pose, "the parent after fork");
}

void test_paths_agree() {
    for_each_method([&](const OptionValues& method) {
        Case c;
        c.values = method;
        c.values.kernel_size = c.values.stride = {2, 2};
        c.values.bandwidth = c.values.activation_bandwidth = 20.0;
        c.outputs = 11;
        c.prepare();
        set_vector_path("baseline");
        const Outputs expected = c.forward();
        const Gradients gradients = c.backward(expected);
        set_vector_path("auto");
        const Outputs o = c.forward();
        check_close(o.pose, expected.pose, "pose");
        check_close(o.activation, expected.activation, "activation");
        const Gradients g = c.backward(expected);
        check_close(g.weight, gradients.weight, "weight gradient");
        check_close(g.first, gradients.first, "first gradient");
        check_close(g.bandwidth, gradients.bandwidth, "bandwidth gradient");
    });
}

// Votes recomputed in each sweep are the same votes.
void test_streaming() {
    for_each_method([&](const OptionValues& method) {
        Case c;
        c.values = method;
        c.values.kernel_size = {4, 4};
        c.values.bandwidth = c.values.activation_bandwidth = 20.0, c.values.iterations = 3;
        c.prepare();
        const Outputs o = c.forward();
        const Gradients g = c.backward(o);
        c.values.vote_budget = 0;
        const Outputs streamed = c.forward();
        CHECK(o.pose == streamed.pose && o.activation == streamed.activation, "%s", c.name().c_str());
        CHECK(same(g, c.backward(o)), "%s", c.name().c_str());
    });
}

void test_empty_batch() {
    Case c;
    c.batch = 0;
    c.values.kernel_size = c.values.stride = {2, 2};
    c.prepare();
    const Outputs o = c.forward(3);
    const Gradients g = c.backward(o, 3);
    CHECK(o.pose.empty() && g.pose.empty(), "sizes");
    for (const Floats* gradient : {&g.weight, &g.first, &g.second, &g.bandwidth})
        for (float x : *gradient) CHECK(x == 0.0f, "gradient of nothing");
}

}  // namespace

void test_runtime() {
    test_empty_batch();
    test_determinism();
    test_streaming();
    test_paths_agree();
    test_callers_at_once();
    test_fork();
}

}}  // namespace
