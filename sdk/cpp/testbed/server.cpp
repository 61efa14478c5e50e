/** A small web service that three kinds of request can bring to its knees: one that holds its lock, one that empties its cache, one that sits on its workers. */
#include <atomic>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <optional>
#include <semaphore>
#include <thread>

#include "cache.hpp"
#include "http.hpp"

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

constexpr std::size_t worker_count = 8;

struct worker {};

struct settings {
    int port = -1, miss_ms = 2;
    bool sdk = true;
};

/* What requests share, with accounts. */
struct accounts {
    plimsoll::app app{"testbed-cpp"};
    plimsoll::pool<worker> workers{app, "workers", make_workers()};
    plimsoll::mutex table{app, "table"};

    static std::vector<std::unique_ptr<worker>> make_workers() {
        std::vector<std::unique_ptr<worker>> workers;
        for (std::size_t i = 0; i < worker_count; i++) workers.push_back(std::make_unique<worker>());
        return workers;
    }
};

/* The same as the standard library has it: what accounts cost is measured against that. */
struct plain {
    std::counting_semaphore<worker_count> workers{worker_count};
    std::mutex table;
};

class server {
public:
    explicit server(const settings &settings) {
        if (settings.sdk) accounts_.emplace();
        cache_.emplace(accounts_ ? accounts_->app.memory("pages", cache::capacity) : plimsoll::resource(), std::chrono::milliseconds(settings.miss_ms));
    }

    http::answer handle(const http::request &request) {
        double seconds = request.number("seconds", 1);
        if (request.path != "/item" && request.path != "/hog/lock" && request.path != "/hog/cache" && request.path != "/hog/pool" && request.path != "/slow") {
            return {404, "/item, /hog/lock, /hog/cache, /hog/pool, /slow"};
        }
        if (!(seconds >= 0 && seconds <= 600)) return {400, "seconds: 0 to 600"};
        auto time = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::duration<double>(seconds));
        return accounts_ ? with_accounts(request, time) : without(request, time);
    }

private:
    /* An innocent that takes long takes nothing. */
    static bool takes_worker(const http::request &request) { return request.path != "/slow"; }

    http::answer with_accounts(const http::request &request, std::chrono::microseconds time) {
        plimsoll::task task(accounts_->app, ("GET " + request.path).c_str(), static_cast<std::uint64_t>(request.number("id", 0)), {.second_run = request.again});
        try {
            auto worker = takes_worker(request) ? accounts_->workers.take(task) : plimsoll::pool<::worker>::lease();
            task.stop_if_cancelled();
            work(request, &task, accounts_->table, time);
            task.stop_if_cancelled();
            return {200, "ok"};
        } catch (const plimsoll::cancelled &cancelled) {
            return {503, std::string("cancelled: ") + cancelled.what(), cancelled.resource()};
        }
    }

    http::answer without(const http::request &request, std::chrono::microseconds time) {
        if (takes_worker(request)) plain_.workers.acquire();
        work(request, nullptr, plain_.table, time);
        if (takes_worker(request)) plain_.workers.release();
        return {200, "ok"};
    }

    void work(const http::request &request, plimsoll::task *task, auto &table, std::chrono::microseconds time) {
        if (request.path == "/item") {
            item(task, table, static_cast<std::uint64_t>(request.number("id", 0)) % hot_pages);
        } else if (request.path == "/hog/lock") {
            std::lock_guard held(table);
            last(task, time);
        } else if (request.path == "/hog/cache") {
            cache::reader reader(*cache_, task);
            until(task, time, [&] { reader.read(next_page_.fetch_add(scan_at_once), scan_at_once); });
        } else {
            last(task, time);
        }
    }

    void item(plimsoll::task *task, auto &table, std::uint64_t page) {
        {
            std::lock_guard held(table);
            std::this_thread::sleep_for(200us);
        }
        cache::reader reader(*cache_, task);
        reader.read(page, 1);
        std::this_thread::sleep_for(300us); /* writes it down */
    }

    /* Goes on until the time is over, and stops when cancelled. */
    template <typename Step>
    static void until(plimsoll::task *task, std::chrono::microseconds time, Step step) {
        auto begun = steady::now();
        for (auto done = 0us; done < time; done = std::chrono::duration_cast<std::chrono::microseconds>(steady::now() - begun)) {
            if (task) {
                task->progress(static_cast<std::uint64_t>(done.count()), static_cast<std::uint64_t>(time.count()));
                task->stop_if_cancelled();
            }
            step();
        }
    }

    static void last(plimsoll::task *task, std::chrono::microseconds time) {
        auto end = steady::now() + time;
        until(task, time, [&] { std::this_thread::sleep_until(std::min(end, steady::now() + 10ms)); });
    }

    static constexpr std::uint64_t hot_pages = 200, scan_at_once = 32;

    std::optional<accounts> accounts_;
    plain plain_;
    std::optional<cache> cache_;
    std::atomic<std::uint64_t> next_page_ = 1000000;
};

/* The number from 0 to `most` that a word is, or -1. */
int number_of(std::string_view word, int most) {
    int number = -1;
    auto [end, error] = std::from_chars(word.begin(), word.end(), number);
    return error == std::errc() && end == word.end() && number >= 0 && number <= most ? number : -1;
}

std::optional<settings> settings_of(int count, char **words) {
    settings settings;
    for (int i = 1; i < count; i++) {
        std::string_view word = words[i];
        bool more = i + 1 < count;
        if (more && word == "--port") settings.port = number_of(words[++i], 65535);
        else if (more && word == "--miss-ms") settings.miss_ms = number_of(words[++i], 1000);
        else if (word == "--no-sdk") settings.sdk = false;
        else return {};
    }
    if (settings.port < 0 || settings.miss_ms < 0) return {};
    return settings;
}

} // namespace

int main(int count, char **words) {
    std::optional<settings> settings = settings_of(count, words);
    if (!settings) {
        std::fprintf(stderr, "usage: testbed --port N [--miss-ms N] [--no-sdk] (port 0 to 65535, 0 takes a free one; a page that is not in the cache takes 0 to 1000 ms, 2 if not said)\n");
        return 2;
    }
    try {
        server server(*settings);
        http::serve(settings->port, [&](const http::request &request) { return server.handle(request); });
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
