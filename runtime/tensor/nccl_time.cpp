#include "shale/runtime/tensor/nccl_time.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"

namespace shale {
namespace {

// The part of CUPTI's C interface (cupti.h) that is used here; it is the same since CUDA 9. It is
// declared here, so that the build does not need the header.
using Result = int;                    // CUptiResult; 0: success
constexpr int kConcurrentKernel = 10;  // CUpti_ActivityKind
// The beginning of CUpti_ActivityKernel4 and later versions, which are packed to 8 bytes.
struct KernelRecord {
  int kind;
  uint8_t cache_config, shared_config;
  uint16_t registers;
  int cache_requested, cache_executed;
  uint64_t start, end, completed;  // nanoseconds
  uint32_t device, context, stream;
  int32_t grid[3], block[3], static_shared, dynamic_shared;
  uint32_t local, local_total, correlation;
  int64_t grid_id;
  const char* name;
};

struct Cupti {
  Result (*enable)(int kind);
  Result (*disable)(int kind);
  Result (*set_callbacks)(void (*request)(uint8_t**, size_t*, size_t*),
                          void (*complete)(void*, uint32_t, uint8_t*, size_t, size_t));
  Result (*next)(uint8_t* buffer, size_t bytes, void** record);
  Result (*flush)(uint32_t flags);
  Result (*text)(Result, const char**);
};

Cupti load_cupti() {
  const char* const wish = std::getenv("SHALE_CUPTI");
  std::vector<std::string> names = {"libcupti.so", "libcupti.so.13", "libcupti.so.12"};
  if (wish != nullptr && std::string_view(wish) != "on") names = {wish};
  void* library = nullptr;
  for (size_t i = 0; library == nullptr && i < names.size(); ++i) {
    library = dlopen(names[i].c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) throw UnavailableError(cat("cupti: cannot load ", dlerror()));
  Cupti cupti{};
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr) throw UnavailableError(cat("cupti: the library lacks ", symbol));
  };
  find(cupti.enable, "cuptiActivityEnable");
  find(cupti.disable, "cuptiActivityDisable");
  find(cupti.set_callbacks, "cuptiActivityRegisterCallbacks");
  find(cupti.next, "cuptiActivityGetNextRecord");
  find(cupti.flush, "cuptiActivityFlushAll");
  find(cupti.text, "cuptiGetResultString");
  return cupti;
}

const Cupti& cupti() {
  static const Cupti once = load_cupti();
  return once;
}

void check(Result result, const char* what) {
  if (result == 0) return;
  const char* text = "unknown error";
  cupti().text(result, &text);
  throw UnavailableError(cat("cupti: ", what, ": ", text));
}

// Begin and end of NCCL's kernels that CUPTI has reported. They are global, because CUPTI calls
// back on its own threads and passes no pointer to an object.
std::mutex mutex;
std::vector<std::pair<uint64_t, uint64_t>> intervals;
uint64_t earlier = 0;  // total nanoseconds of intervals that were dropped

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *bytes = 1 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *bytes));
  *most_records = 0;  // 0: as many records as fit
}

void read_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t filled) {
  const std::lock_guard lock(mutex);
  for (void* next = nullptr; cupti().next(buffer, filled, &next) == 0;) {
    const auto& record = *static_cast<const KernelRecord*>(next);
    if (record.kind != kConcurrentKernel || record.name == nullptr) continue;
    // The names are ncclDevKernel_... since NCCL 2.19, and ncclKernel_... before.
    if (!std::string_view(record.name).starts_with("nccl")) continue;
    intervals.emplace_back(record.start, record.end);
  }
  std::free(buffer);
}

}  // namespace

std::unique_ptr<NcclTime> NcclTime::of(const Device& device) {
  const char* const wish = std::getenv("SHALE_CUPTI");
  if (device.type != DeviceType::kCuda || wish == nullptr || *wish == '\0') return nullptr;
  try {
    return std::make_unique<NcclTime>();
  } catch (const UnavailableError& error) {
    log_warning("the time of NCCL's kernels is not known: ", error.what());
    return nullptr;
  }
}

NcclTime::NcclTime() {
  check(cupti().set_callbacks(give_buffer, read_buffer), "cuptiActivityRegisterCallbacks");
  check(cupti().enable(kConcurrentKernel), "cuptiActivityEnable");
}

NcclTime::~NcclTime() {
  cupti().disable(kConcurrentKernel);
  cupti().flush(0);
}

double NcclTime::seconds() {
  cupti().flush(0);
  const std::lock_guard lock(mutex);
  // Merges overlapping intervals: kernels of several communicators run at the same time, which
  // counts once.
  std::sort(intervals.begin(), intervals.end());
  std::vector<std::pair<uint64_t, uint64_t>> apart;
  for (const auto& [start, end] : intervals) {
    if (!apart.empty() && start <= apart.back().second) {
      apart.back().second = std::max(apart.back().second, end);
    } else {
      apart.emplace_back(start, end);
    }
  }
  // Keeps the newest 4096 intervals and adds up the others, so that a long run needs no more
  // memory. A record may arrive late, but not by so many kernels.
  constexpr std::ptrdiff_t kKept = 4096;
  const auto kept = apart.end() - std::min(kKept, std::ssize(apart));
  for (auto at = apart.begin(); at != kept; ++at) earlier += at->second - at->first;
  intervals.assign(kept, apart.end());
  uint64_t nanoseconds = earlier;
  for (const auto& [start, end] : intervals) nanoseconds += end - start;
  return static_cast<double>(nanoseconds) * 1e-9;
}

}  // namespace shale
