/** What C++ programs lock and wait with, keeping account by itself. `plimsoll.hpp` includes this.
 *
 * They fit std::lock_guard, std::unique_lock, std::scoped_lock, std::shared_lock and std::condition_variable_any, and act for the thread's current task: lock and unlock for the same one. */
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <system_error>
#include <vector>

#include <plimsoll.hpp>

namespace plimsoll {

/** A std::mutex. Those of one name are one resource. */
class mutex {
public:
    mutex(const app &owner, const char *name) : what_(owner.lock(name)) {}
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() {
        plimsoll_task *task = plimsoll_task_current();
        if (!raw_.try_lock()) {
            plimsoll_wait(task, what_.raw());
            raw_.lock();
        }
        taken(task);
    }
    bool try_lock() {
        if (!raw_.try_lock()) return false;
        taken(plimsoll_task_current());
        return true;
    }
    void unlock() {
        plimsoll_task *task = std::exchange(holder_, nullptr);
        /* Its task may have ended since. */
        if (task && task->turn == turn_) plimsoll_free(task, what_.raw(), 1);
        raw_.unlock();
    }

private:
    void taken(plimsoll_task *task) {
        plimsoll_get(task, what_.raw(), 1);
        holder_ = task;
        turn_ = task ? task->turn : 0;
    }

    std::mutex raw_;
    resource what_;
    plimsoll_task *holder_ = nullptr; /* whoever locked it unlocks it, so this needs no lock of its own */
    std::uint64_t turn_ = 0;
};

/** A std::shared_mutex: a reader has a share of it, a writer all of it. */
class shared_mutex {
public:
    shared_mutex(const app &owner, const char *name) : what_(owner.lock(name, 0)) {}
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() {
        if (try_lock()) return;
        plimsoll_wait(plimsoll_task_current(), what_.raw());
        raw_.lock();
        get();
    }
    bool try_lock() { return raw_.try_lock() && get(); }
    void unlock() {
        free();
        raw_.unlock();
    }
    void lock_shared() {
        if (try_lock_shared()) return;
        plimsoll_wait(plimsoll_task_current(), what_.raw());
        raw_.lock_shared();
        get();
    }
    bool try_lock_shared() { return raw_.try_lock_shared() && get(); }
    void unlock_shared() {
        free();
        raw_.unlock_shared();
    }

private:
    bool get() {
        plimsoll_get(plimsoll_task_current(), what_.raw(), 1);
        return true;
    }
    void free() { plimsoll_free(plimsoll_task_current(), what_.raw(), 1); }

    std::shared_mutex raw_;
    resource what_;
};

/** A std::counting_semaphore whose permits are held: who acquires one releases it. */
template <std::ptrdiff_t Most = 2147483647>
class counting_semaphore {
public:
    counting_semaphore(const app &owner, const char *name, std::ptrdiff_t permits) : raw_(permits), what_(owner.queue(name, static_cast<std::uint64_t>(permits))) {}

    void acquire() {
        if (try_acquire()) return;
        plimsoll_wait(plimsoll_task_current(), what_.raw());
        raw_.acquire();
        get();
    }
    bool try_acquire() { return raw_.try_acquire() && get(); }
    template <typename Rep, typename Period>
    bool try_acquire_for(const std::chrono::duration<Rep, Period> &time) {
        if (try_acquire()) return true;
        waiting wait(what_);
        return raw_.try_acquire_for(time) && get();
    }
    void release() {
        plimsoll_free(plimsoll_task_current(), what_.raw(), 1);
        raw_.release();
    }

private:
    bool get() {
        plimsoll_get(plimsoll_task_current(), what_.raw(), 1);
        return true;
    }

    std::counting_semaphore<Most> raw_;
    resource what_;
};

/** A pool of things: connections, workers. Outlives what is taken from it. */
template <typename T>
class pool {
public:
    /** One of them, until the end of its scope. */
    class lease {
    public:
        lease() = default;
        lease(lease &&other) noexcept : pool_(std::exchange(other.pool_, nullptr)), thing_(std::move(other.thing_)), task_(other.task_), turn_(other.turn_) {}
        lease &operator=(lease &&other) noexcept {
            give();
            pool_ = std::exchange(other.pool_, nullptr);
            thing_ = std::move(other.thing_);
            task_ = other.task_;
            turn_ = other.turn_;
            return *this;
        }
        ~lease() { give(); }

        /** False if the wait for it was ended by a stop request. */
        explicit operator bool() const { return pool_ != nullptr; }
        T &operator*() { return *thing_; }
        T *operator->() { return thing_.get(); }
        /** Gives it back before the end of the scope, on the thread that took it. */
        void give() {
            if (!pool_) return;
            if (task_ && task_->turn == turn_) plimsoll_free(task_, pool_->what_.raw(), 1);
            std::exchange(pool_, nullptr)->put(std::move(thing_));
        }

    private:
        friend class pool;
        lease(pool *from, std::unique_ptr<T> thing, plimsoll_task *task) : pool_(from), thing_(std::move(thing)), task_(task), turn_(task ? task->turn : 0) {}

        pool *pool_ = nullptr;
        std::unique_ptr<T> thing_;
        plimsoll_task *task_ = nullptr;
        std::uint64_t turn_ = 0;
    };

    pool(const app &owner, const char *name, std::vector<std::unique_ptr<T>> things) : free_(std::move(things)), what_(owner.queue(name, free_.size())) {}
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    /** Takes one and waits for it if need be; no longer than until `stop` is asked for: `take(task.stop_token())`. */
    lease take(std::stop_token stop = {}) {
        plimsoll_task *task = plimsoll_task_current();
        std::unique_lock held(lock_);
        if (free_.empty()) {
            plimsoll_wait(task, what_.raw());
            if (!given_.wait(held, std::move(stop), [&] { return !free_.empty(); })) {
                plimsoll_wait_end(task, what_.raw());
                return {};
            }
        }
        return taken(task);
    }
    /** Takes one and waits for it if need be, no longer than until the task is cancelled. Cheaper than with its token, which is only made when there is a wait. */
    lease take(task &of) {
        lease one = try_take();
        return one ? std::move(one) : take(of.stop_token());
    }
    /** Takes one if there is one. */
    lease try_take() {
        std::unique_lock held(lock_);
        return free_.empty() ? lease() : taken(plimsoll_task_current());
    }

private:
    lease taken(plimsoll_task *task) {
        std::unique_ptr<T> thing = std::move(free_.back());
        free_.pop_back();
        plimsoll_get(task, what_.raw(), 1);
        return lease(this, std::move(thing), task);
    }
    void put(std::unique_ptr<T> thing) {
        std::unique_lock held(lock_);
        /* Its capacity has room for all of them: this does not throw. */
        free_.push_back(std::move(thing));
        given_.notify_one();
    }

    std::mutex lock_;
    std::condition_variable_any given_;
    std::vector<std::unique_ptr<T>> free_;
    resource what_;
};

} // namespace plimsoll
