/** Plimsoll for C++20: the C library, with lifetimes.
 *
 * Header-only over libplimsoll; or altogether, if one source file of the program includes `plimsoll_implementation.hpp`. As there, nothing fails loudly: without a ledger everything works and accounts for nothing.
 * See README.md for ten lines that use it. */
#pragma once

#include <plimsoll.h>
#include <plimsoll_tracked.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace plimsoll {

enum class kind { lock = PLIMSOLL_LOCK, memory = PLIMSOLL_MEMORY, queue = PLIMSOLL_QUEUE, cpu = PLIMSOLL_CPU, io = PLIMSOLL_IO };

enum class outcome { finished = PLIMSOLL_FINISHED, cancelled = PLIMSOLL_CANCELLED, will_rerun = PLIMSOLL_WILL_RERUN };

/** What a cancel action is told; the texts are copies. */
struct cancellation {
    std::uint64_t key;
    std::string label, resource, reason;
};

/** What `task::stop_if_cancelled` throws. */
class cancelled : public std::runtime_error {
public:
    cancelled(const std::string &reason, std::string resource) : std::runtime_error(reason), resource_(std::move(resource)) {}
    /** What the task held up, empty if that is not known. */
    const std::string &resource() const { return resource_; }

private:
    std::string resource_;
};

namespace detail {

/* An exception must not reach the C library: it is told to the agent as a failure. */
template <typename Call>
int guarded(plimsoll_cancellation *what, Call &&call) noexcept {
    const char *why = "an exception that is no std::exception";
    try {
        call();
        return 0;
    } catch (const std::exception &error) {
        why = error.what();
        std::string_view(why).copy(what->failure, sizeof what->failure - 1);
    } catch (...) {
        std::string_view(why).copy(what->failure, sizeof what->failure - 1);
    }
    return 1;
}

using action = std::function<void(const cancellation &)>;

inline int act(plimsoll_cancellation *what, void *context) {
    return guarded(what, [&] { (*static_cast<action *>(context))({what->key, what->label, what->resource, what->reason}); });
}

inline void release_action(void *context) {
    delete static_cast<action *>(context);
}

struct again {
    std::function<void()> run, drop;

    static void call(void *context, std::function<void()> again::*which) noexcept {
        std::unique_ptr<again> self(static_cast<again *>(context));
        try {
            if ((*self).*which) ((*self).*which)();
        } catch (...) {
            /* It has nobody to go to. Who re-runs something handles what that throws. */
        }
    }
    static void do_run(void *context) { call(context, &again::run); }
    static void do_drop(void *context) { call(context, &again::drop); }
};

} // namespace detail

/** Something that tasks get, free and wait for: a handle, to be copied. Lives as long as its application. */
class resource {
public:
    resource() = default;
    explicit resource(plimsoll_resource *raw) : raw_(raw) {}
    plimsoll_resource *raw() const { return raw_; }

private:
    plimsoll_resource *raw_ = nullptr;
};

/** Settings of an application; see `plimsoll_options`. Zero is the default. */
struct app_options {
    std::string dir;
    std::uint32_t resources = 0, lanes = 0, tasks = 0, accounts = 0;
    bool group_reads = false;
    detail::action cancel;                      /**< called for tasks without an action of their own, on a thread that no task needs; what it throws is told to the agent */
    std::function<void(std::string_view)> say;  /**< gets what there is to say; nothing: stderr */
    int control_fd = -1;                        /**< a connected socket to be used in place of the agent's; it then belongs to the application */
};

/** An application: its ledger and its connection to the agent. One a process and name. */
class app {
public:
    explicit app(const std::string &name, app_options options = {}) : options_(std::make_unique<app_options>(std::move(options))) {
        plimsoll_options raw{};
        raw.dir = options_->dir.empty() ? nullptr : options_->dir.c_str();
        raw.resources = options_->resources;
        raw.lanes = options_->lanes;
        raw.tasks = options_->tasks;
        raw.accounts = options_->accounts;
        raw.group_reads = options_->group_reads;
        if (options_->cancel) {
            raw.cancel = detail::act;
            raw.cancel_context = &options_->cancel;
        }
        if (options_->say) {
            raw.say = say;
            raw.say_context = &options_->say;
        }
        raw_ = plimsoll_open_with_control_fd(name.c_str(), &raw, options_->control_fd);
    }
    app(const app &) = delete;
    app &operator=(const app &) = delete;
    /** End tasks first. A cancel action that is running is waited for, for five seconds; the application's options outlive it in any case. */
    ~app() {
        plimsoll_close(raw_);
        /* An action may still be running in them. */
        if (raw_ && (options_->cancel || options_->say)) graveyard(std::move(options_));
    }

    resource lock(const char *name, std::uint64_t capacity = 1) const { return of(kind::lock, name, capacity); }
    resource queue(const char *name, std::uint64_t capacity) const { return of(kind::queue, name, capacity); }
    resource memory(const char *name, std::uint64_t capacity) const { return of(kind::memory, name, capacity); }
    resource of(kind what, const char *name, std::uint64_t capacity) const {
        return resource(plimsoll_resource_of(raw_, static_cast<plimsoll_kind>(what), name, capacity));
    }

    /** The path of the ledger, empty if there is none. */
    std::string file() const { return plimsoll_file(raw_); }
    /** Whether an agent is there. */
    bool connected() const { return plimsoll_connected(raw_); }
    plimsoll_app *raw() const { return raw_; }

private:
    static void say(const char *line, void *context) {
        try {
            (*static_cast<std::function<void(std::string_view)> *>(context))(line);
        } catch (...) {
            /* Then it is not said. */
        }
    }
    struct grave {
        std::unique_ptr<app_options> options;
        grave *next;
    };
    static void graveyard(std::unique_ptr<app_options> options) {
        static grave *all = nullptr;
        auto *one = new (std::nothrow) grave{std::move(options), nullptr};
        if (!one) return;
        one->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&all, &one->next, one, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
    }

    std::unique_ptr<app_options> options_;
    plimsoll_app *raw_ = nullptr;
};

/** Settings of a task. As it is: a request that can be cancelled, current on its thread. */
struct task_options {
    bool background = false;    /**< no request: counts in no latency */
    bool uncancellable = false; /**< is seen, never cancelled */
    bool detached = false;      /**< is not made the thread's current task */
    bool second_run = false;    /**< a re-execution that was handed to a thread of yours */
    std::optional<std::chrono::steady_clock::time_point> deadline = {}; /**< when it is of no use any more */
    std::function<void()> rerun = {};   /**< runs it again after it was cancelled, on a thread of the SDK; a task that this begins there is marked as a second run */
    std::function<void()> dropped = {}; /**< called instead, if it is not run again */
};

/** A task, from here to the end of its scope. Belongs to one thread at a time, on which it ends. */
class task {
public:
    task(const app &owner, const char *label, std::uint64_t key = 0) : raw_(plimsoll_task_begin(owner.raw(), label, key)) {}
    task(const app &owner, const char *label, std::uint64_t key, task_options options) {
        plimsoll_task_options raw{};
        raw.background = options.background;
        raw.uncancellable = options.uncancellable;
        raw.detached = options.detached;
        raw.second_run = options.second_run;
        /* On Linux the steady clock is CLOCK_MONOTONIC. */
        if (options.deadline) raw.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(options.deadline->time_since_epoch()).count());
        if (options.rerun) {
            again_ = std::make_unique<detail::again>(detail::again{std::move(options.rerun), std::move(options.dropped)});
            raw.rerun = {detail::again::do_run, detail::again::do_drop, again_.get()};
        }
        raw_ = plimsoll_task_begin_with(owner.raw(), label, key, &raw);
    }
    task(const task &) = delete;
    task &operator=(const task &) = delete;
    ~task() { end(); }

    /** Ends it now. `how`, if given, says whether the cancellation was why; otherwise it was, if it was noticed. */
    outcome end(std::optional<outcome> how = {}) {
        if (!raw_) return outcome::finished;
        plimsoll_task *raw = std::exchange(raw_, nullptr);
        plimsoll_outcome ended = how ? plimsoll_task_end_as(raw, static_cast<plimsoll_outcome>(*how)) : plimsoll_task_end(raw);
        if (ended == PLIMSOLL_WILL_RERUN) (void)again_.release();
        return static_cast<outcome>(ended);
    }

    void get(const resource &what, std::uint64_t n = 1) const { plimsoll_get(raw_, what.raw(), n); }
    void free(const resource &what, std::uint64_t n = 1) const { plimsoll_free(raw_, what.raw(), n); }
    void wait(const resource &what) const { plimsoll_wait(raw_, what.raw()); }
    void wait_end(const resource &what) const { plimsoll_wait_end(raw_, what.raw()); }
    /** `n` units had to be evicted for it, which took so long. */
    void slow(const resource &what, std::uint64_t n, std::chrono::nanoseconds delay) const {
        plimsoll_slow(raw_, what.raw(), n, delay.count() > 0 ? static_cast<std::uint64_t>(delay.count()) : 0);
    }
    void progress(std::uint64_t done, std::uint64_t total) const { plimsoll_progress(raw_, done, total); }

    /** Whether it shall stop: a load and a compare while it need not. */
    bool is_cancelled() const { return plimsoll_cancelled(raw_); }
    /** Why, or empty. */
    std::string reason() const {
        const char *reason = plimsoll_cancel_reason(raw_);
        return reason ? reason : "";
    }
    /** What it holds up, or empty: see `plimsoll_cancel_resource`. */
    std::string held_up() const {
        const char *resource = plimsoll_cancel_resource(raw_);
        return resource ? resource : "";
    }
    /** Throws `plimsoll::cancelled` with the reason if it shall stop. */
    void stop_if_cancelled() const {
        if (is_cancelled()) throw plimsoll::cancelled(reason(), held_up());
    }
    /** An action of this task's own, called instead of the application's. False if it has been cancelled already, or cannot be. */
    bool on_cancel(detail::action call) const {
        return plimsoll_task_on_cancel(raw_, detail::act, detail::release_action, new detail::action(std::move(call)));
    }
    /** A token that asks to stop when the task is cancelled, whose callbacks are the task's own action. The same one every time. */
    std::stop_token stop_token() {
        if (!stop_) {
            stop_.emplace();
            bool taken = on_cancel([stop = *stop_](const cancellation &) mutable { stop.request_stop(); });
            if (!taken && is_cancelled()) stop_->request_stop();
        }
        return stop_->get_token();
    }
    /** Takes it off this thread; `attach` puts it on another. */
    void detach() const {
        if (plimsoll_task_current() == raw_) plimsoll_task_detach();
    }
    void attach() const { plimsoll_task_attach(raw_); }
    plimsoll_task *raw() const { return raw_; }

private:
    plimsoll_task *raw_ = nullptr;
    std::unique_ptr<detail::again> again_;
    std::optional<std::stop_source> stop_;
};

/** A further handle on a running task, for another thread that works for it at the same time. Made by either thread, used and destroyed by that one, before the task ends. */
class share {
public:
    explicit share(const task &of) : raw_(plimsoll_task_share(of.raw())) {}
    share(const share &) = delete;
    share &operator=(const share &) = delete;
    ~share() { plimsoll_task_end(raw_); }

    void get(const resource &what, std::uint64_t n = 1) const { plimsoll_get(raw_, what.raw(), n); }
    void free(const resource &what, std::uint64_t n = 1) const { plimsoll_free(raw_, what.raw(), n); }
    bool is_cancelled() const { return plimsoll_cancelled(raw_); }
    /** Makes it current on this thread, for the tracked locks. */
    void attach() const { plimsoll_task_attach(raw_); }
    plimsoll_task *raw() const { return raw_; }

private:
    plimsoll_task *raw_;
};

/** Holds units of a resource until the end of its scope, for the thread's current task or the one that is given. */
class hold {
public:
    explicit hold(const resource &what, std::uint64_t n = 1) : hold(plimsoll_task_current(), what, n) {}
    hold(const task &holder, const resource &what, std::uint64_t n = 1) : hold(holder.raw(), what, n) {}
    hold(const hold &) = delete;
    hold &operator=(const hold &) = delete;
    ~hold() {
        /* The task may have ended since, and the handle be another's. */
        if (task_ && task_->turn == turn_) plimsoll_free(task_, what_.raw(), n_);
    }

private:
    hold(plimsoll_task *holder, const resource &what, std::uint64_t n) : task_(holder), what_(what), n_(n), turn_(holder ? holder->turn : 0) {
        plimsoll_get(task_, what_.raw(), n_);
    }

    plimsoll_task *task_;
    resource what_;
    std::uint64_t n_, turn_;
};

/** Waits for a resource until the end of its scope, or until the task gets it. */
class waiting {
public:
    explicit waiting(const resource &what) : waiting(plimsoll_task_current(), what) {}
    waiting(const task &waiter, const resource &what) : waiting(waiter.raw(), what) {}
    waiting(const waiting &) = delete;
    waiting &operator=(const waiting &) = delete;
    ~waiting() {
        if (task_ && task_->turn == turn_) plimsoll_wait_end(task_, what_.raw());
    }

private:
    waiting(plimsoll_task *waiter, const resource &what) : task_(waiter), what_(what), turn_(waiter ? waiter->turn : 0) { plimsoll_wait(task_, what_.raw()); }

    plimsoll_task *task_;
    resource what_;
    std::uint64_t turn_;
};

} // namespace plimsoll

#include <plimsoll_tracked.hpp>
