#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Where the parameters of a unit lie in its flat buffer. Every parameter starts at a multiple of
// kFlatAlignment elements and every rank's shard is one contiguous range of whole multiples, so
// that gradient norms (sums over aligned blocks) have the same bits however the buffer is divided.
// Where that would be mostly padding, as for a block's norms on a thousand ranks, one rank has all
// of the buffer, and others nothing.
inline constexpr int64_t kFlatAlignment = 1024;

struct FlatEntry {
  Parameter* parameter = nullptr;
  int64_t offset = 0;

  int64_t numel() const { return parameter->numel(); }
  int64_t end() const { return offset + numel(); }
  Tensor part_of(const Tensor& buffer) const;  // in the parameter's shape
};

struct FlatLayout {
  std::vector<FlatEntry> entries;
  int64_t numel = 0;           // of the whole buffer
  int64_t shard_numel = 0;     // of a rank's range that is not empty
  std::optional<int> owner{};  // the one rank that has such a range; none: all have

  // This rank's range of the buffer: [rank * shard_numel, (rank + 1) * shard_numel) without owner.
  int64_t begin_of(int rank) const { return owner ? 0 : rank * shard_numel; }
  int64_t count_of(int rank) const { return owner.value_or(rank) == rank ? shard_numel : 0; }
};

// turn: how many buffers with an owner came before, so that all ranks get some in turn.
FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int ranks, int64_t turn = 0);
// Zeroes what lies between parameters, and after the last.
void zero_padding(const FlatLayout& layout, const Tensor& buffer);

// A unit is a module's subtree without the subtrees of units inside it. A parameter used by several
// modules (tied weights) belongs to the lowest unit that encloses its owner and all its users.
struct UnitPlan {
  Module* module = nullptr;
  std::vector<Parameter*> parameters;  // in the order of declaration
  std::string part = {};               // of the module, for messages: "head"; empty: all of it
  int chunk = 0;                       // of a pipeline's rank: chunks have backwards of their own
  // Those whose gradient is added to that of another use, on this rank or on another stage.
  std::set<const Parameter*> tied = {};
  // Parameters of a unit, this one or another, of which this one has the gradient of the second
  // use (Parameter::tied_value).
  std::vector<Parameter*> apart = {};
};

// The parameters of a new unit around `module`: those of its subtree that are not `taken` and that
// nothing outside it uses. Inner units are planned first. Throws ConfigError for a module that does
// not run by itself.
UnitPlan plan_unit(Module& module, const std::set<const Parameter*>& taken);

// The units of a whole tree, in the order of `modules`, which may enclose each other. The root of
// the tree is always a unit and comes last. Throws InternalError for what lies outside the tree.
std::vector<UnitPlan> plan_units(Module& root, const std::vector<Module*>& modules);

bool is_inside(const Module* module, const Module* ancestor);  // or is it itself
const Module& root_of(const Module& module);                   // of the tree

}  // namespace shale::comm
