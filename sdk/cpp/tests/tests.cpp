/** The C++ SDK: lifetimes, locks, stop tokens, exceptions, re-execution; with the agent and the harness of the C tests. */
#include <plimsoll.hpp>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>

extern "C" {
#include "agent.h"
#include "harness.h"
}

using namespace std::chrono_literals;

namespace {

plimsoll::app_options here() {
    plimsoll::app_options options;
    options.dir = test_dir();
    return options;
}

/* Retries soon. */
void hurry(const plimsoll::app &app) {
    __atomic_store_n(&app.raw()->patience.retry_ns, 20000000, __ATOMIC_RELAXED);
}

struct sum {
    std::uint64_t gets = 0, frees = 0, slows = 0, waiting = 0, holding = 0;
    bool operator==(const sum &) const = default;
};

sum sum_of(const plimsoll::app &app, const char *name) {
    sum sum;
    plimsoll_resource *resource = app.of(plimsoll::kind::lock, name, 0).raw();
    for (std::uint32_t i = 0; i < PLIMSOLL_LOAD(&app.raw()->accounts_fresh); i++) {
        plimsoll_account *account = &app.raw()->accounts[i];
        if (((PLIMSOLL_LOAD(&account->owner) >> 32) & 0xffff) != resource->index) continue;
        sum.gets += PLIMSOLL_LOAD(&account->gets);
        sum.frees += PLIMSOLL_LOAD(&account->frees);
        sum.slows += PLIMSOLL_LOAD(&account->slows);
        sum.waiting += PLIMSOLL_LOAD(&account->waiting_since_ns) != 0;
        sum.holding += PLIMSOLL_LOAD(&account->holding_since_ns) != 0;
    }
    return sum;
}

bool eventually(std::function<bool()> good) {
    return test_until([](void *context) { return (*static_cast<std::function<bool()> *>(context))(); }, &good);
}

} // namespace

TEST(cpp_lifetimes) {
    plimsoll::app app("test", here());
    plimsoll::resource pages = app.memory("pages", 256);
    CHECK(app.file().starts_with(test_dir()));
    {
        plimsoll::task outer(app, "outer", 1);
        CHECK(plimsoll_task_current() == outer.raw());
        {
            plimsoll::task inner(app, "inner", 2, {.background = true, .deadline = std::chrono::steady_clock::time_point(5s)});
            CHECK(inner.raw()->record->flags == (PLIMSOLL_TASK_CANCELLABLE | PLIMSOLL_TASK_BACKGROUND) && inner.raw()->record->deadline_ns == 5000000000u);
            plimsoll::hold hold(pages, 3);
            CHECK((sum_of(app, "pages") == sum{3, 0, 0, 0, 1}));
            inner.slow(pages, 2, 5ms);
            plimsoll::waiting waiting(inner, pages);
            CHECK((sum_of(app, "pages") == sum{3, 0, 3, 1, 1}));
            inner.progress(1, 2);
            CHECK(inner.raw()->record->total == 2);
        }
        CHECK((sum_of(app, "pages") == sum{3, 3, 3, 0, 0}));
        CHECK(plimsoll_task_current() == outer.raw());
        outer.detach();
        CHECK(!plimsoll_task_current());
        outer.attach();
        plimsoll::hold hold(outer, pages);
    }
    CHECK(!plimsoll_task_current() && (sum_of(app, "pages") == sum{4, 4, 3, 0, 0}));
    try {
        plimsoll::task task(app, "throws", 3);
        task.get(pages);
        throw std::runtime_error("out of it");
    } catch (const std::runtime_error &) {
    }
    CHECK(!plimsoll_task_current() && (sum_of(app, "pages") == sum{5, 5, 3, 0, 0}));
    {
        /* A hold that outlives its task does nothing to the next one, which has the same handle. */
        plimsoll::task first(app, "first", 4);
        std::optional<plimsoll::hold> left;
        left.emplace(first, pages);
        plimsoll_task *handle = first.raw();
        first.end();
        plimsoll::task next(app, "next", 5);
        next.get(pages, 2);
        left.reset();
        CHECK(next.raw() == handle && (sum_of(app, "pages") == sum{8, 6, 3, 0, 1}));
    }
    std::string path = app.file();
    CHECK(access(path.c_str(), F_OK) == 0);
}

TEST(cpp_without_a_ledger) {
    int said = 0;
    plimsoll::app_options options;
    options.dir = "/proc/nowhere";
    options.say = [&](std::string_view line) { said += line.find("/proc/nowhere") != line.npos; };
    plimsoll::app app("test", options);
    CHECK(said == 1 && app.file().empty() && !app.connected());
    plimsoll::mutex mutex(app, "table");
    plimsoll::task task(app, "GET /", 1, {.rerun = [] {}});
    std::lock_guard held(mutex);
    plimsoll::hold hold(app.queue("workers", 8));
    plimsoll::share share(task);
    CHECK(!task.is_cancelled() && task.reason().empty() && !share.is_cancelled());
    CHECK(!task.on_cancel([](const plimsoll::cancellation &) {}) && !task.stop_token().stop_requested());
    task.stop_if_cancelled();
    CHECK(task.end() == plimsoll::outcome::finished && task.end() == plimsoll::outcome::finished);
}

TEST(cpp_mutex) {
    plimsoll::app app("test", here());
    plimsoll::mutex mutex(app, "table"), other(app, "other");
    plimsoll::task task(app, "first", 1);
    std::unique_lock held(mutex);
    CHECK(!mutex.try_lock());
    std::jthread second([&] {
        plimsoll::task task(app, "second", 2);
        std::scoped_lock both(mutex, other);
    });
    CHECK(eventually([&] { return sum_of(app, "table").slows >= 1 || sum_of(app, "other").gets >= 1; }));
    held.unlock();
    second.join();
    sum table = sum_of(app, "table");
    CHECK(table.gets == table.frees && table.gets >= 2 && table.waiting == 0);
    held.lock();
    std::condition_variable_any never;
    CHECK(never.wait_for(held, 1ms) == std::cv_status::timeout);
    CHECK(sum_of(app, "table").gets == table.gets + 2 && sum_of(app, "table").frees == table.frees + 1);
}

TEST(cpp_shared_mutex) {
    plimsoll::app app("test", here());
    plimsoll::shared_mutex mutex(app, "index");
    plimsoll::task task(app, "first", 1);
    std::shared_lock reads(mutex);
    CHECK(!mutex.try_lock());
    std::jthread second([&] {
        plimsoll::task task(app, "second", 2);
        std::unique_lock writes(mutex);
    });
    CHECK(eventually([&] { return sum_of(app, "index").waiting == 1; }));
    reads.unlock();
    second.join();
    CHECK((sum_of(app, "index") == sum{2, 2, 1, 0, 0}));
}

TEST(cpp_semaphore) {
    plimsoll::app app("test", here());
    plimsoll::counting_semaphore<> slots(app, "slots", 1);
    plimsoll::task task(app, "first", 1);
    slots.acquire();
    CHECK(!slots.try_acquire() && !slots.try_acquire_for(1ms));
    CHECK((sum_of(app, "slots") == sum{1, 0, 1, 0, 1}));
    std::jthread second([&] {
        plimsoll::task task(app, "second", 2);
        slots.acquire();
        slots.release();
    });
    CHECK(eventually([&] { return sum_of(app, "slots").waiting == 1; }));
    slots.release();
    second.join();
    CHECK((sum_of(app, "slots") == sum{2, 2, 2, 0, 0}));
}

TEST(cpp_pool) {
    plimsoll::app app("test", here());
    std::vector<std::unique_ptr<std::string>> things;
    things.push_back(std::make_unique<std::string>("connection"));
    plimsoll::pool<std::string> pool(app, "connections", std::move(things));
    plimsoll::task task(app, "first", 1);
    auto lease = pool.take();
    CHECK(lease && *lease == "connection" && lease->size() == 10 && !pool.try_take());
    auto moved = std::move(lease);
    CHECK(!lease && moved);
    std::jthread second([&] {
        plimsoll::task task(app, "second", 2);
        auto lease = pool.take();
        CHECK(lease && *lease == "connection");
    });
    CHECK(eventually([&] { return sum_of(app, "connections").waiting == 1; }));
    moved.give();
    second.join();
    CHECK((sum_of(app, "connections") == sum{2, 2, 1, 0, 0}));
    /* Who is asked to stop waits no more. */
    auto last = pool.take();
    std::stop_source stop;
    std::jthread third([&] {
        plimsoll::task task(app, "third", 3);
        CHECK(!pool.take(stop.get_token()));
    });
    CHECK(eventually([&] { return sum_of(app, "connections").waiting == 1; }));
    stop.request_stop();
    third.join();
    CHECK((sum_of(app, "connections") == sum{3, 2, 2, 0, 1}));
}

TEST(cpp_stop_token) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll::app app("test", here());
    hurry(app);
    app.lock("table");
    agent_welcome(&agent);
    plimsoll::task task(app, "GET /report", 7);
    std::stop_token token = task.stop_token();
    CHECK(token == task.stop_token() && !token.stop_requested());
    std::atomic<bool> elsewhere = false;
    std::stop_callback callback(token, [&, here = std::this_thread::get_id()] { elsewhere = std::this_thread::get_id() != here; });
    agent_cancel(&agent, 1, task.raw(), "it holds the table");
    CHECK(std::string_view(agent_line(&agent)) == "acknowledge 1");
    CHECK(eventually([&] { return token.stop_requested() && elsewhere; }));
    std::string why;
    try {
        task.stop_if_cancelled();
    } catch (const plimsoll::cancelled &stopped) {
        why = stopped.what();
        CHECK(stopped.resource() == "table");
    }
    CHECK(why == "it holds the table" && task.reason() == why);
    CHECK(task.end() == plimsoll::outcome::cancelled);
    CHECK(std::string_view(agent_line(&agent)) == "outcome 1 cancelled");
    /* A token that is asked for too late. */
    plimsoll::task late(app, "GET /late", 8);
    agent_cancel(&agent, 2, late.raw(), "why");
    agent_line(&agent);
    CHECK(eventually([&] { return late.is_cancelled(); }) && late.stop_token().stop_requested());
    agent_end(&agent);
}

/* Who is cancelled waits no more. */
TEST(cpp_pool_of_a_cancelled_task) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll::app app("test", here());
    hurry(app);
    agent_welcome(&agent);
    std::vector<std::unique_ptr<int>> things;
    things.push_back(std::make_unique<int>(1));
    plimsoll::pool<int> pool(app, "things", std::move(things));
    plimsoll::task holder(app, "has it", 9);
    auto lease = pool.take(holder);
    CHECK(lease && *lease == 1);
    std::atomic<plimsoll_task *> waiter = nullptr;
    std::jthread third([&] {
        plimsoll::task task(app, "waits", 10);
        waiter = task.raw();
        CHECK(!pool.take(task) && task.is_cancelled());
    });
    CHECK(eventually([&] { return sum_of(app, "things").waiting == 1; }));
    agent_cancel(&agent, 1, waiter, "why");
    third.join();
    CHECK((sum_of(app, "things") == sum{1, 0, 1, 0, 1}));
    agent_end(&agent);
}

TEST(cpp_actions_that_throw) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll::app_options options = here();
    plimsoll::cancellation told;
    options.cancel = [&](const plimsoll::cancellation &what) {
        told = what;
        throw std::runtime_error("the session is gone");
    };
    plimsoll::app app("test", options);
    hurry(app);
    app.lock("table");
    agent_welcome(&agent);
    plimsoll::task first(app, "GET /report", 7), second(app, "GET /own", 8);
    second.on_cancel([](const plimsoll::cancellation &) { throw 5; });
    agent_cancel(&agent, 1, first.raw(), "why");
    CHECK(std::string_view(agent_line(&agent)) == "acknowledge 1");
    CHECK(std::string_view(agent_line(&agent)) == "outcome 1 failed the session is gone");
    CHECK(told.key == 7 && told.label == "GET /report" && told.resource == "table" && told.reason == "why");
    agent_cancel(&agent, 2, second.raw(), "why");
    CHECK(std::string_view(agent_line(&agent)) == "acknowledge 2");
    CHECK(std::string_view(agent_line(&agent)) == "outcome 2 failed an exception that is no std::exception");
    agent_end(&agent);
}

TEST(cpp_action_outlives_its_application) {
    static std::atomic<bool> hangs = true, called = false;
    struct agent agent;
    agent_listen(&agent);
    {
        plimsoll::app_options options = here();
        options.cancel = [text = std::string("a capture that is too long to be kept within the function itself, and is freed with it")](const plimsoll::cancellation &) {
            called = true;
            while (hangs) std::this_thread::sleep_for(1ms);
            if (text.size() < 10) called = false;
        };
        plimsoll::app app("test", std::move(options));
        hurry(app);
        __atomic_store_n(&app.raw()->patience.action_ns, 100000000, __ATOMIC_RELAXED);
        agent_welcome(&agent);
        plimsoll::task task(app, "GET /report", 7);
        agent_cancel(&agent, 1, task.raw(), "why");
        CHECK(eventually([] { return called.load(); }));
    }
    hangs = false;
    agent_end(&agent);
}

TEST(cpp_rerun) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll::app app("test", here());
    hurry(app);
    agent_welcome(&agent);
    std::atomic<int> ran = 0, dropped = 0;
    auto begin_and_cancel = [&](int id) {
        plimsoll::task task(app, "job", 7,
                            {.rerun =
                                 [&] {
                                     plimsoll::task again(app, "job again", 7);
                                     if (again.raw()->record->flags == PLIMSOLL_TASK_RERUN) ran++;
                                     throw std::runtime_error("which goes nowhere");
                                 },
                             .dropped = [&] { dropped++; }});
        agent_cancel(&agent, id, task.raw(), "why");
        agent_line(&agent);
        CHECK(eventually([&] { return task.is_cancelled(); }) && task.end() == plimsoll::outcome::will_rerun);
        agent_line(&agent);
    };
    begin_and_cancel(1);
    begin_and_cancel(2);
    agent_say(&agent, "rerun 1");
    CHECK(std::string_view(agent_line(&agent)) == "reran 1");
    agent_say(&agent, "drop 2");
    CHECK(std::string_view(agent_line(&agent)) == "dropped 2");
    CHECK(ran == 1 && dropped == 1);
    /* One that finished keeps what it would have been run with to itself. */
    auto count = std::make_shared<int>(0);
    {
        plimsoll::task task(app, "job", 8, {.rerun = [count] { ++*count; }});
        CHECK(count.use_count() == 2);
    }
    CHECK(count.use_count() == 1 && *count == 0);
    agent_end(&agent);
}

TEST(cpp_threads) {
    plimsoll::app app("test", here());
    plimsoll::mutex mutex(app, "table");
    plimsoll::shared_mutex index(app, "index");
    plimsoll::counting_semaphore<> slots(app, "slots", 2);
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([&, i] {
                for (int round = 0; round < 2000; round++) {
                    plimsoll::task task(app, "work", static_cast<std::uint64_t>(round));
                    slots.acquire();
                    {
                        std::lock_guard held(mutex);
                        if (i) index.lock_shared();
                        else index.lock();
                    }
                    if (i) index.unlock_shared();
                    else index.unlock();
                    slots.release();
                    plimsoll::share share(task);
                }
            });
        }
    }
    for (const char *name : {"table", "index", "slots"}) {
        sum all = sum_of(app, name);
        CHECK(all.gets == 8000 && all.frees == 8000 && all.waiting == 0 && all.holding == 0);
    }
}
