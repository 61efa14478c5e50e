/** A cache of pages that evicts the one that was used longest ago, and keeps account of who takes pages and whom that costs. */
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>

#include <plimsoll.hpp>

class cache {
public:
    static constexpr std::size_t capacity = 256;

    /** Without accounts `pages` is no resource. A read takes as long as `miss`. */
    cache(plimsoll::resource pages, std::chrono::milliseconds miss) : pages_(pages), miss_(miss) {}

    /** What a reader has of the cache: given back at the end of its scope. Without a task it is on nobody's account. */
    class reader {
    public:
        reader(cache &from, plimsoll::task *task) : cache_(from), task_(task) {}
        reader(const reader &) = delete;
        reader &operator=(const reader &) = delete;
        ~reader() {
            if (task_) task_->free(cache_.pages_, has_);
        }

        /** Reads `count` pages from `first` on. Those that are not there cost one read together. */
        void read(std::uint64_t first, std::size_t count);

    private:
        cache &cache_;
        plimsoll::task *task_;
        std::size_t has_ = 0;
    };

private:
    /* How many pages were not there, and how many had to make room. */
    struct cost {
        std::size_t missed = 0, evicted = 0;
    };
    cost touch(std::uint64_t first, std::size_t count);

    plimsoll::resource pages_;
    std::chrono::milliseconds miss_;
    std::mutex lock_;
    std::list<std::uint64_t> recent_; /* the latest in front */
    std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};
