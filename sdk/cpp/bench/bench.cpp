/** What the account costs in C++: ns for a get and a free, in calm and with exact stamps, and for a task; beside an untracked and a tracked mutex. One JSON line. */
#include <plimsoll.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

/* Many short batches, of which the median is taken: on a machine that others use, too, most of them are undisturbed. */
constexpr int batches = 2001, pairs = 10000, tasks = 1000;

/* With `exact`, there is an agent that asks for exact stamps; the SDK would clear what a dead one left behind. */
template <typename Loop>
double median_ns(plimsoll_header *header, int count, bool exact, Loop loop) {
    static std::array<double, batches> ns;
    loop();
    for (double &each : ns) {
        if (exact) {
            __atomic_store_n(&header->agent_beat_ns, plimsoll_now_ns(), __ATOMIC_RELAXED);
            __atomic_store_n(&header->flags, PLIMSOLL_FLAG_EXACT, __ATOMIC_RELAXED);
        }
        auto before = steady::now();
        loop();
        each = static_cast<double>(std::chrono::nanoseconds(steady::now() - before).count()) / count;
    }
    __atomic_store_n(&header->flags, 0, __ATOMIC_RELAXED);
    std::nth_element(ns.begin(), ns.begin() + batches / 2, ns.end());
    return ns[batches / 2];
}

} // namespace

int main() {
    char made[] = "/tmp/plimsoll-bench-XXXXXX";
    std::filesystem::path dir = mkdtemp(made);
    {
        plimsoll::app_options options;
        options.dir = dir;
        plimsoll::app app("bench", options);
        if (app.file().empty()) return 1;
        plimsoll::resource table = app.lock("table");
        plimsoll::task task(app, "bench", 1);
        plimsoll::mutex tracked(app, "mutex");
        std::mutex plain;
        plimsoll_header *header = task.raw()->header;
        std::this_thread::sleep_for(1500ms); /* until the clock is calibrated */
        auto get_and_free = [&] {
            const plimsoll::resource what = table; /* a handle is copied */
            for (int i = 0; i < pairs; i++) {
                task.get(what);
                task.free(what);
            }
        };
        plimsoll::resource workers = app.queue("workers", 8);
        double nested = median_ns(header, pairs, false, [&] {
            const plimsoll::resource what = table, other = workers;
            for (int i = 0; i < pairs / 2; i++) {
                task.get(other);
                task.get(what);
                task.free(what);
                task.free(other);
            }
        });
        double calm = median_ns(header, pairs, false, get_and_free), exact = median_ns(header, pairs, true, get_and_free);
        double hold = median_ns(header, pairs, false, [&] {
            const plimsoll::resource what = table;
            for (int i = 0; i < pairs; i++) plimsoll::hold hold(task, what);
        });
        double mutex = median_ns(header, pairs, false, [&] {
            for (int i = 0; i < pairs; i++) std::lock_guard held(plain);
        });
        double tracked_mutex = median_ns(header, pairs, false, [&] {
            for (int i = 0; i < pairs; i++) std::lock_guard held(tracked);
        });
        double begin_end = median_ns(header, tasks, false, [&] {
            for (int i = 0; i < tasks; i++) plimsoll::task one(app, "GET /item", static_cast<std::uint64_t>(i));
        });
        std::printf("{\"lang\":\"cpp\",\"calm_ns\":%.2f,\"calm_nested_ns\":%.2f,\"exact_ns\":%.2f,\"task_ns\":%.1f,\"hold_ns\":%.2f,\"mutex_ns\":%.2f,\"tracked_mutex_ns\":%.2f}\n", calm, nested, exact, begin_end, hold, mutex, tracked_mutex);
    }
    std::filesystem::remove(dir);
}
