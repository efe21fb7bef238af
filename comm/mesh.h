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
  std::string name;  // "shard", "tensor"; of hybrid sharding "replica" and "node"
  int size = 0;      // 0: what the other axes leave
};

// Over how many ranks a training run is cut along each axis.
struct ParallelSizes {
  int replica = 1;   // groups that hold copies of what the others of an axis share
  int pipeline = 1;  // stages: runs of the model's layers
  int shard = 0;     // ranks that share the training state of a stage; 0: what the others leave
  int context = 1;   // parts of a sequence
  int tensor = 1;    // parts of a layer

  int model_ranks() const { return pipeline * context * tensor; }  // that work on one micro-batch
};

// The axes "replica", "pipeline", "shard", "context" and "tensor" of so many ranks, in this order:
// the last one, which is the fastest, needs the most bandwidth, and lies within nodes where ranks
// fill them. Throws ConfigError, naming the sizes, unless they divide the number of ranks.
std::vector<MeshAxis> parallel_axes(const ParallelSizes& sizes, int ranks);

// Where the ranks of a group stand in a grid of named axes. The last axis is the fastest: with
// {{"shard", 0}, {"tensor", 4}} ranks 0 to 3 are one tensor group, hence on one node where ranks fill
// nodes.
class MeshLayout {
 public:
  // Throws ConfigError that names the axes if their sizes do not multiply to `ranks`, if more than
  // one is left open, or if two have one name.
  MeshLayout(std::vector<MeshAxis> axes, int ranks);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int ranks() const { return ranks_; }
  int size(std::string_view axis) const;  // throws ConfigError for an axis that the mesh lacks
  int coordinate(std::string_view axis, int rank) const;
  // The ranks that differ from `rank` in these axes only, in the mesh's order.
  std::vector<int> peers(const std::vector<std::string_view>& axes, int rank) const;
  // Of each rank: the lowest of its peers.
  std::vector<int> lowest_peers(const std::vector<std::string_view>& axes) const;
  // Which axes these are, without those of size 1.
  std::vector<bool> varying(const std::vector<std::string_view>& axes) const;
  // Where a rank stands, for messages: "pipeline 1, tensor 3", the axes that are longer than 1.
  std::string place_of(int rank) const;

 private:
  size_t index_of(std::string_view axis) const;
  int stride(size_t index) const;

  std::vector<MeshAxis> axes_;
  int ranks_;
};

// Hybrid sharding: parameters are sharded over the axis "node", the ranks of one node, and
// replicated over the axis "replica", the nodes. Collective, as the nodes are compared. Throws
// ConfigError if nodes have different numbers of ranks or a node's ranks are not consecutive.
// local_rank and local_size: of this rank among those of its node.
std::vector<MeshAxis> hybrid_axes(ProcessGroup& group, int local_rank, int local_size);

// A MeshLayout with the process groups that are asked for.
class Mesh {
 public:
  // `group` outlives the mesh.
  Mesh(ProcessGroup& group, std::vector<MeshAxis> axes);

  const MeshLayout& layout() const { return layout_; }
  int size(std::string_view axis) const { return layout_.size(axis); }
  int coordinate(std::string_view axis) const { return layout_.coordinate(axis, group_.rank()); }

  // The ranks that differ from this one in that axis only; rank() is this one's coordinate.
  ProcessGroup& group(std::string_view axis) { return flatten({axis}); }
  ProcessGroup& all() { return group_; }
  // The ranks that differ from this one in these axes only, in the mesh's order, whatever the order
  // of the axes. The group is made when it is first asked for, which is collective over all ranks,
  // and is kept; that of all ranks is all() itself. Throws ConfigError for an axis that the mesh
  // lacks.
  ProcessGroup& flatten(const std::vector<std::string_view>& axes);

 private:
  ProcessGroup& group_;
  MeshLayout layout_;
  std::map<std::vector<bool>, std::unique_ptr<ProcessGroup>> groups_;  // by varying()
};

}  // namespace shale::comm
