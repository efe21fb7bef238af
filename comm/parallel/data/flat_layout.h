#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Alignment of parameters in a flat buffer, in elements. Every parameter starts at a multiple of
// it. Every rank's shard is one contiguous range, whose length is a multiple of it. Gradient norms
// are sums over aligned blocks, so their bits do not depend on how the buffer is divided. Sometimes
// most of such a buffer would be padding, for example for the norms of a block on a thousand ranks.
// Then one rank owns the whole buffer and the other ranks have nothing.
inline constexpr int64_t kFlatAlignment = 1024;

struct FlatEntry {
  Parameter* parameter = nullptr;
  int64_t offset = 0;

  int64_t numel() const { return parameter->numel(); }
  int64_t end() const { return offset + numel(); }
  Tensor part_of(const Tensor& buffer) const;  // view of the parameter, in its shape
};

struct FlatLayout {
  std::vector<FlatEntry> entries;
  int64_t numel = 0;           // elements of the whole buffer
  int64_t shard_numel = 0;     // number of elements in a rank's range; ranks without a range have 0
  std::optional<int> owner{};  // the only rank with a range; nullopt: every rank has one

  // First element, and number of elements, of a rank's range in the buffer. Without an owner it is
  // [rank * shard_numel, (rank + 1) * shard_numel).
  int64_t begin_of(int rank) const { return owner ? 0 : rank * shard_numel; }
  int64_t count_of(int rank) const { return owner.value_or(rank) == rank ? shard_numel : 0; }
};

// turn: number of earlier buffers with an owner. Ranks become owners in rotation.
FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int ranks, int64_t turn = 0);
// Zeroes the gaps between parameters, and the elements after the last parameter.
void zero_padding(const FlatLayout& layout, const Tensor& buffer);

// Plan of a unit. The unit has the parameters of a module's subtree, except those of units inside
// it. A parameter of several modules (tied weights) belongs to the lowest unit that encloses all of
// them.
struct UnitPlan {
  Module* module = nullptr;
  std::vector<Parameter*> parameters;  // in the order of declaration
  std::string part = {};  // part of the module, for messages, such as "head"; empty: all of it
  int chunk = 0;  // model chunk of a pipeline rank; each chunk has its own backward
  // Tied parameters. The gradient of their second use, in any pipeline stage, is added to theirs.
  std::set<const Parameter*> tied = {};
  // Parameters of which this unit has only the gradient of their second use
  // (Parameter::tied_value).
  std::vector<Parameter*> apart = {};
};

// Plans a unit of the parameters in a module's subtree, except those in `taken` and those that
// modules outside the subtree use. Plan inner units first. Throws ConfigError for a module that
// does not run.
UnitPlan plan_unit(Module& module, const std::set<const Parameter*>& taken);

// Plans the units of a whole tree, in the order of `modules`, which may enclose each other. The
// root is always a unit and comes last. Throws InternalError for modules outside the root's tree.
std::vector<UnitPlan> plan_units(Module& root, const std::vector<Module*>& modules);

bool is_inside(const Module* module, const Module* ancestor);  // true also if both are the same
const Module& root_of(const Module& module);                   // root of the module's tree

}  // namespace shale::comm
