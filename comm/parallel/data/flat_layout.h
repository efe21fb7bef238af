#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Positions of a unit's parameters in its flat buffer. Every parameter starts at a multiple of
// kFlatAlignment elements, and every rank's shard is one contiguous range of a multiple of them, so
// that gradient norms (sums over aligned blocks) have the same bits however the buffer is divided.
// If that would be mostly padding, as for a block's norms on a thousand ranks, one rank owns the
// whole buffer and the other ranks have nothing.
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
  int64_t shard_numel = 0;     // elements of a rank's range, unless it has none
  std::optional<int> owner{};  // the only rank with a range; none: every rank has one

  // Range of a rank in the buffer; without owner: [rank * shard_numel, (rank + 1) * shard_numel).
  int64_t begin_of(int rank) const { return owner ? 0 : rank * shard_numel; }
  int64_t count_of(int rank) const { return owner.value_or(rank) == rank ? shard_numel : 0; }
};

// turn: number of earlier buffers with an owner; ranks become owners in turn.
FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int ranks, int64_t turn = 0);
// Zeroes the gaps between parameters, and after the last parameter.
void zero_padding(const FlatLayout& layout, const Tensor& buffer);

// Plan of a unit: a module's subtree without the subtrees of units inside it. A parameter of
// several modules (tied weights) belongs to the lowest unit that encloses all of them.
struct UnitPlan {
  Module* module = nullptr;
  std::vector<Parameter*> parameters;  // in the order of declaration
  std::string part = {};  // name of a part of the module, for messages: "head"; empty: all of it
  int chunk = 0;                       // chunk of a pipeline rank; chunks have separate backwards
  // Tied parameters whose gradient is added to that of a second use, in any pipeline stage.
  std::set<const Parameter*> tied = {};
  // Parameters of which this unit has only the gradient of the second use (Parameter::tied_value).
  std::vector<Parameter*> apart = {};
};

// Plans a new unit around `module`: the parameters of its subtree that are not `taken` and that no
// module outside uses. Plan inner units first. Throws ConfigError for a module that does not run.
UnitPlan plan_unit(Module& module, const std::set<const Parameter*>& taken);

// Plans the units of a whole tree, in the order of `modules`, which may enclose each other. The
// root is always a unit and comes last. Throws InternalError for modules outside the root's tree.
std::vector<UnitPlan> plan_units(Module& root, const std::vector<Module*>& modules);

bool is_inside(const Module* module, const Module* ancestor);  // also true if both are the same
const Module& root_of(const Module& module);                   // root of the module's tree

}  // namespace shale::comm
