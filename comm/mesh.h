#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::comm {

// One dimension of a mesh.
struct MeshAxis {
  std::string name;  // "shard", "tensor"; with hybrid sharding "replica" and "node"
  int size = 0;      // 0: number of ranks divided by the other axes' sizes
};

// Number of ranks, or groups of ranks, along each axis of a training run.
struct ParallelSizes {
  int replica = 1;   // data-parallel groups with full copies of the training state
  int pipeline = 1;  // pipeline stages
  // ranks that shard a pipeline stage's training state; 0: number of ranks / product of the other
  // sizes
  int shard = 0;
  int context = 1;   // context-parallel degree
  int tensor = 1;    // tensor-parallel degree

  int model_ranks() const { return pipeline * context * tensor; }  // ranks per micro-batch
};

// Returns the axes "replica", "pipeline", "shard", "context" and "tensor" for `ranks` ranks, in
// this order. Consecutive ranks differ in the last axis, which needs the most bandwidth. They are
// on one node if ranks fill the nodes in order. Throws ConfigError, naming the sizes, unless these
// divide the number of ranks.
std::vector<MeshAxis> parallel_axes(const ParallelSizes& sizes, int ranks);

// Coordinates of a group's ranks in a grid of named axes. Consecutive ranks differ in the last
// axis: with {{"shard", 0}, {"tensor", 4}} ranks 0 to 3 are one tensor group. They are on one node
// if ranks fill the nodes in order.
class MeshLayout {
 public:
  // Throws ConfigError that names the axes if the product of their sizes is not `ranks`, if more
  // than one size is 0, or if two axes have the same name.
  MeshLayout(std::vector<MeshAxis> axes, int ranks);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int ranks() const { return ranks_; }
  int size(std::string_view axis) const;  // throws ConfigError for an unknown axis
  int coordinate(std::string_view axis, int rank) const;
  // Ranks whose coordinates differ from those of `rank` only in these axes, in the mesh's order.
  std::vector<int> peers(const std::vector<std::string_view>& axes, int rank) const;
  // For each rank, the lowest rank of its peers().
  std::vector<int> lowest_peers(const std::vector<std::string_view>& axes) const;
  // result[i] is true if axis i of the mesh is one of `axes` and its size is not 1.
  std::vector<bool> varying(const std::vector<std::string_view>& axes) const;
  // Coordinates of a rank for messages, without axes of size 1: "pipeline 1, tensor 3".
  std::string place_of(int rank) const;

 private:
  size_t index_of(std::string_view axis) const;
  int stride(size_t index) const;

  std::vector<MeshAxis> axes_;
  int ranks_;
};

// Returns axes for hybrid sharding: parameters are sharded over the axis "node", the ranks of one
// node, and replicated over the axis "replica", the nodes. local_rank: this rank's number on its
// node. local_size: number of ranks on its node. Throws ConfigError if nodes have different numbers
// of ranks, or if a node's ranks are not consecutive. Collective, because it compares the nodes.
std::vector<MeshAxis> hybrid_axes(ProcessGroup& group, int local_rank, int local_size);

// A MeshLayout with its process groups, each made on first use.
class Mesh {
 public:
  // `group` outlives the mesh.
  Mesh(ProcessGroup& group, std::vector<MeshAxis> axes);

  const MeshLayout& layout() const { return layout_; }
  int size(std::string_view axis) const { return layout_.size(axis); }
  int coordinate(std::string_view axis) const { return layout_.coordinate(axis, group_.rank()); }

  // Group of the ranks that differ from this one only in `axis`. rank() is the coordinate along it.
  ProcessGroup& group(std::string_view axis) { return flatten({axis}); }
  ProcessGroup& all() { return group_; }
  // Group of the ranks that differ from this one only in `axes`, in the mesh's order, whatever the
  // order of `axes`. The first call for a group makes it, and is collective over all ranks. Later
  // calls return the same group. The group of all ranks is all(). Throws ConfigError for an unknown
  // axis.
  ProcessGroup& flatten(const std::vector<std::string_view>& axes);

 private:
  ProcessGroup& group_;
  MeshLayout layout_;
  std::map<std::vector<bool>, std::unique_ptr<ProcessGroup>> groups_;  // key: varying()
};

}  // namespace shale::comm
