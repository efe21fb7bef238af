#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"

namespace shale::comm {

class WorkState;

// Class of the moved data, for traffic statistics.
enum class Traffic : uint8_t { kParameters, kGradients, kActivations, kControl };

enum class CollectiveOp : uint8_t {
  kBarrier,
  kAllReduceSum,
  kAllReduceMax,
  kReduceScatterSum,
  kAllGather,
  kBroadcast,
  kGather,
  kReduceSum,
  kAllToAll,
  kAllToAllV,
};

// True if every rank has a slice for every other rank.
inline bool is_all_to_all(CollectiveOp op) {
  return op == CollectiveOp::kAllToAll || op == CollectiveOp::kAllToAllV;
}
// True if only the root receives.
inline bool is_to_root(CollectiveOp op) {
  return op == CollectiveOp::kGather || op == CollectiveOp::kReduceSum;
}

std::string_view op_name(CollectiveOp op);  // "all_reduce_sum"

// One collective as passed to a backend. Views are contiguous vectors.
struct CollectiveCall {
  CollectiveOp op = CollectiveOp::kBarrier;
  View in;   // this rank's input; the same as `out` for operations in place
  View out;  // this rank's output
  int root = 0;
  std::string tag;
  void* stream = nullptr;            // see CollectiveOptions
  std::shared_ptr<WorkState> after;  // see CollectiveOptions; null: none
  Traffic traffic = Traffic::kControl;

  std::vector<int64_t> in_counts = {};  // kAllToAllV only: elements for, and from, each rank
  std::vector<int64_t> out_counts = {};
  uint64_t balance = 0;  // kAllToAllV only: pair_balance()
  int64_t step = -1;     // see CollectiveOptions

  // Number of elements of the smaller view, `in` or `out`. For a gather it is that of `in`, because
  // only the root has an output. Must be equal on all ranks. 0 for kAllToAllV, whose counts differ
  // between ranks.
  int64_t count() const {
    if (op == CollectiveOp::kAllToAllV) return 0;
    return op == CollectiveOp::kGather ? in.numel() : std::min(in.numel(), out.numel());
  }
  int64_t larger_bytes() const { return std::max(in.bytes(), out.bytes()); }
};

}  // namespace shale::comm
