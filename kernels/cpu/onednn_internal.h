#pragma once

// Helpers for the sources that call oneDNN; no other file includes this header.

#include <omp.h>
#include <dnnl.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "shale/base/dtype.h"

// A oneDNN build with another threading runtime would ignore OnednnThreads, and its results would
// depend on the number of threads.
static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP ||
                  DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "oneDNN must be built with OpenMP or without threads");

namespace shale::kernels::cpu {

// Sets the number of threads that oneDNN uses while this object exists: oneDNN calls
// omp_get_max_threads() when it makes a primitive and when it runs one. The number belongs to the
// calling thread's OpenMP task, inside and outside of a parallel region. Reductions run on one
// thread, so the bits do not depend on the number.
class OnednnThreads {
 public:
  explicit OnednnThreads(int threads) : before_(omp_get_max_threads()), threads_(threads) {
    if (threads_ != before_) omp_set_num_threads(threads_);
  }
  ~OnednnThreads() {
    if (threads_ != before_) omp_set_num_threads(before_);
  }
  OnednnThreads(const OnednnThreads&) = delete;
  OnednnThreads& operator=(const OnednnThreads&) = delete;

 private:
  int before_, threads_;
};

inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// oneDNN's memory objects take non-const pointers, but oneDNN only reads its sources.
inline dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, onednn_engine(), const_cast<void*>(data));
}

// Cache of compiled primitives by spec. A model needs a few dozen entries. If there are too many
// specs, the cache is cleared, and each spec is compiled again at its next use; objects in use stay
// valid. Thread-safe.
template <typename Spec, typename Made, typename Hash>
class OnednnCache {
 public:
  static constexpr size_t kCapacity = 512;

  template <typename Make>
  std::shared_ptr<const Made> get(const Spec& spec, Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto it = entries_.find(spec); it != entries_.end()) return it->second;
    std::shared_ptr<const Made> made = make();
    if (entries_.size() >= kCapacity) entries_.clear();
    entries_.emplace(spec, made);
    return made;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Spec, std::shared_ptr<const Made>, Hash> entries_;
};

// Adds numbers to a hash.
class SpecHasher {
 public:
  SpecHasher& add(uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 32;
    return *this;
  }
  size_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

}  // namespace shale::kernels::cpu
