// A libcupti.so for tests. Each flush reports 10 ms of GPU work. Three of the kernels are NCCL's,
// of which two overlap; together the three cover 5 ms. Types and signatures are those of NVIDIA's
// cupti.h.
#include <cupti.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr uint64_t kMs = 1'000'000;  // nanoseconds

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
bool is_enabled = false;
uint64_t now = 100 * kMs;

void add(uint8_t* buffer, size_t& filled, const char* name, uint64_t start, uint64_t end) {
  CUpti_ActivityKernel9 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = start, record.end = end;
  record.name = name;
  std::memcpy(buffer + filled, &record, sizeof record);
  filled += sizeof record;
}

}  // namespace

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  request = requested, complete = completed;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (is_enabled) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  if (request == nullptr || kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  is_enabled = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
  is_enabled = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  if (!is_enabled) return CUPTI_SUCCESS;
  uint8_t* buffer = nullptr;
  size_t bytes = 0, most = 0, filled = 0;
  request(&buffer, &bytes, &most);
  if (bytes < 4096 || reinterpret_cast<uintptr_t>(buffer) % 8 != 0) std::abort();
  // CUPTI orders the records of a stream by the kernels' ends, not by their starts.
  add(buffer, filled, "gemm90_kernel", now, now + 9 * kMs);
  add(buffer, filled, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", now + 2 * kMs, now + 6 * kMs);
  add(buffer, filled, "ncclDevKernel_SendRecv", now + kMs + kMs / 2, now + 4 * kMs);
  add(buffer, filled, "ncclKernel_AllGather_RING_LL_Sum_int8_t", now, now + kMs / 2);
  now += 10 * kMs;
  complete(nullptr, 0, buffer, bytes, filled);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t filled, CUpti_Activity** record) {
  auto* next = reinterpret_cast<uint8_t*>(*record);
  next = next == nullptr ? buffer : next + sizeof(CUpti_ActivityKernel9);
  if (next == buffer + filled) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "multiple subscribers";
  return CUPTI_SUCCESS;
}

}  // extern "C"
