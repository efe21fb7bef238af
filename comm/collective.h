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

// What a collective moves, for the accounts.
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

// Whether every rank has a slice for every other.
inline bool is_all_to_all(CollectiveOp op) {
  return op == CollectiveOp::kAllToAll || op == CollectiveOp::kAllToAllV;
}
// Whether only the root receives.
inline bool is_to_root(CollectiveOp op) {
  return op == CollectiveOp::kGather || op == CollectiveOp::kReduceSum;
}

std::string_view op_name(CollectiveOp op);  // "all_reduce_sum"

// One collective, as a backend sees it. Views are contiguous vectors.
struct CollectiveCall {
  CollectiveOp op = CollectiveOp::kBarrier;
  View in;   // what this rank gives; for operations in place the same as out
  View out;  // what it receives
  int root = 0;
  std::string tag;
  void* stream = nullptr;            // see CollectiveOptions
  std::shared_ptr<WorkState> after;  // see CollectiveOptions; null: nothing
  Traffic traffic = Traffic::kControl;

  std::vector<int64_t> in_counts = {};  // of kAllToAllV: elements for, and from, each rank
  std::vector<int64_t> out_counts = {};
  uint64_t balance = 0;  // of these: pair_balance()
  int64_t step = -1;     // see CollectiveOptions

  // What all ranks have alike: elements of the smaller of the two; of a gather those that every
  // rank gives, as only the root receives. Ranks of kAllToAllV have nothing alike: 0.
  int64_t count() const {
    if (op == CollectiveOp::kAllToAllV) return 0;
    return op == CollectiveOp::kGather ? in.numel() : std::min(in.numel(), out.numel());
  }
  int64_t larger_bytes() const { return std::max(in.bytes(), out.bytes()); }  // of the two views
};

}  // namespace shale::comm
