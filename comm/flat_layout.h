#pragma once

#include <cstdint>
#include <vector>

#include "runtime/nn/module.h"

namespace shale::comm {

// Where the parameters of a unit lie in its flat buffer. Every parameter starts at a multiple of
// kFlatAlignment elements and every rank's shard is one contiguous range of whole multiples, so
// that gradient norms (sums over aligned blocks) have the same bits however the buffer is divided.
inline constexpr int64_t kFlatAlignment = 1024;

struct FlatEntry {
  Parameter* parameter = nullptr;
  int64_t offset = 0;
};

struct FlatLayout {
  std::vector<FlatEntry> entries;
  int64_t numel = 0;        // of the whole buffer: ranks * shard_numel
  int64_t shard_numel = 0;  // of one rank's range, [rank * shard_numel, (rank + 1) * shard_numel)
};

FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int ranks);

// The parameters of each unit. A unit is a module's subtree without the subtrees of units inside
// it; the root of the tree is always a unit and comes last. A parameter used by several units (tied
// weights) belongs to the lowest unit that encloses its owner and all its users. The units' order
// is that of `modules`.
struct UnitPlan {
  Module* module = nullptr;
  std::vector<Parameter*> parameters;  // trainable ones
  std::vector<Parameter*> frozen;
};
std::vector<UnitPlan> plan_units(Module& root, const std::vector<Module*>& modules);

}  // namespace shale::comm
