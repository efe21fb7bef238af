#include "shale/kernels/cpu/parallel.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>

#include "shale/kernels/dry_run.h"

namespace shale::kernels {
namespace {

// Keeps the exception of the chunk with the lowest number.
class FirstError {
 public:
  void keep(int64_t chunk) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (chunk >= chunk_) return;
    chunk_ = chunk;
    error_ = std::current_exception();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  int64_t chunk_ = std::numeric_limits<int64_t>::max();
  std::exception_ptr error_;
};

}  // namespace

void parallel_chunks(const Exec& exec, int64_t n, int64_t grain, Schedule schedule, ChunkFn fn,
                     void* context) {
  if (n <= 0 || DryRun::is_on()) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (n + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(std::max(exec.threads, 1), chunks));
  if (threads == 1) {
    for (int64_t begin = 0; begin < n; begin += grain)
      fn(context, begin, std::min(begin + grain, n));
    return;
  }
  FirstError first;  // an exception must not leave an OpenMP region
  const auto run = [&](int64_t chunk) {
    try {
      fn(context, chunk * grain, std::min((chunk + 1) * grain, n));
    } catch (...) {
      first.keep(chunk);
    }
  };
  if (schedule == Schedule::kDynamic) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) run(chunk);
  } else {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) run(chunk);
  }
  first.rethrow();
}

}  // namespace shale::kernels
