#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "shale/base/exec.h"

namespace shale::kernels {

// How chunks of work are assigned to threads. The chunks are the same for both schedules.
enum class Schedule : uint8_t {
  kStatic,   // each thread has a contiguous range; for equal work
  kDynamic,  // the next free thread takes the next chunk; for uneven work
};

using ChunkFn = void (*)(void* context, int64_t begin, int64_t end);
void parallel_chunks(const Exec& exec, int64_t n, int64_t grain, Schedule schedule, ChunkFn fn,
                     void* context);

// Calls fn(begin, end) for [0, grain), [grain, 2 grain), ... up to n, on exec.threads threads.
// Chunks depend only on n and grain, never on the number of threads, so that a result combined per
// chunk has the same bits for any number of threads. If calls throw, rethrows the exception of the
// lowest chunk, so that messages do not depend on threads either. A fn that is a lambda with SIMD
// code needs HWY_ATTR.
template <typename Fn>
void parallel_for(const Exec& exec, int64_t n, int64_t grain, Fn&& fn,
                  Schedule schedule = Schedule::kStatic) {
  using Plain = std::remove_reference_t<Fn>;
  const ChunkFn call = [](void* context, int64_t begin, int64_t end) {
    (*static_cast<Plain*>(context))(begin, end);
  };
  parallel_chunks(exec, n, grain, schedule, call,
                  const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
}

}  // namespace shale::kernels
