#pragma once

#include <cstddef>
#include <functional>

namespace shale {

// Calls work(i, worker) for every i in [0, count), handed out in order to at most `workers`
// threads, of which the caller is one; `worker` counts them from 0. After an exception no more are
// begun, and the one that is thrown is of the lowest i: that which a loop would have met first.
void in_parallel(size_t count, size_t workers,
                 const std::function<void(size_t i, size_t worker)>& work);

}  // namespace shale
