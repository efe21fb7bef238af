#pragma once

#include <cstddef>
#include <functional>

namespace shale {

// Calls work(i, worker) for every i in [0, count). Tasks start in order of i, on at most `workers`
// threads including the caller's; `worker` is the index of the thread. After an exception no
// further task starts. If several tasks fail, throws the exception of the lowest i, as a serial
// loop would.
void in_parallel(size_t count, size_t workers,
                 const std::function<void(size_t i, size_t worker)>& work);

}  // namespace shale
