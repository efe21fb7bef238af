#pragma once

#include <cstddef>
#include <functional>

namespace shale {

// Calls work(i, worker) for every i in [0, count). Tasks are started in order on at most `workers`
// threads, including the caller; `worker` numbers them from 0. After an exception no further task
// starts, and the exception of the lowest i is thrown, which is the one that a serial loop would
// meet first.
void in_parallel(size_t count, size_t workers,
                 const std::function<void(size_t i, size_t worker)>& work);

}  // namespace shale
