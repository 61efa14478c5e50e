/** The cache of `cache.hpp`. */
#include "cache.hpp"

#include <thread>

cache::cost cache::touch(std::uint64_t first, std::size_t count) {
    std::lock_guard held(lock_);
    cost cost;
    for (std::uint64_t id = first; id < first + count; id++) {
        auto found = where_.find(id);
        if (found != where_.end()) {
            recent_.splice(recent_.begin(), recent_, found->second);
            continue;
        }
        cost.missed++;
        if (recent_.size() == capacity) {
            cost.evicted++;
            where_.erase(recent_.back());
            recent_.pop_back();
        }
        recent_.push_front(id);
        where_[id] = recent_.begin();
    }
    return cost;
}

void cache::reader::read(std::uint64_t first, std::size_t count) {
    cost cost = cache_.touch(first, count);
    if (cost.missed) {
        auto before = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(cache_.miss_);
        /* What had to make room is what will have to be read again: the read is what an eviction costs. */
        if (cost.evicted && task_) task_->slow(cache_.pages_, cost.evicted, std::chrono::steady_clock::now() - before);
    }
    if (task_) task_->get(cache_.pages_, count);
    has_ += count;
    /* Nobody has more of a cache than there is. */
    if (has_ > capacity) {
        if (task_) task_->free(cache_.pages_, has_ - capacity);
        has_ = capacity;
    }
}
