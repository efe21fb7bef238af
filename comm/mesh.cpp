#include "shale/comm/mesh.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

std::string to_text(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes)
    text += cat(text.empty() ? "" : " x ", axis.name, "=", axis.size);
  return text;
}

}  // namespace

std::vector<MeshAxis> parallel_axes(const ParallelSizes& sizes, int ranks) {
  std::vector<MeshAxis> axes = {{"replica", sizes.replica},
                                {"pipeline", sizes.pipeline},
                                {"shard", sizes.shard},
                                {"context", sizes.context},
                                {"tensor", sizes.tensor}};
  int64_t product = 1;
  for (const MeshAxis& axis : axes) {
    const bool is_open = axis.name == "shard" && axis.size == 0;
    if (axis.size < 1 && !is_open) {
      throw ConfigError(cat("mesh: ", axis.name, "=", axis.size, ", expected 1 or more"));
    }
    if (!is_open) product = std::min<int64_t>(product * axis.size, int64_t{1} << 31);
  }
  if (product > ranks || ranks % product != 0) {
    throw ConfigError(cat("mesh: ", to_text(axes), ": the sizes multiply to ", product,
                          ", expected a divisor of the ", ranks, ranks == 1 ? " rank" : " ranks"));
  }
  return MeshLayout(std::move(axes), ranks).axes();
}

MeshLayout::MeshLayout(std::vector<MeshAxis> axes, int ranks)
    : axes_(std::move(axes)), ranks_(ranks) {
  if (axes_.empty()) throw ConfigError("mesh: no axes, expected at least one");
  MeshAxis* open = nullptr;
  int64_t product = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    MeshAxis& axis = axes_[i];
    const auto same_name = [&](const MeshAxis& other) { return other.name == axis.name; };
    if (axis.name.empty() || axis.size < 0) {
      throw ConfigError(
          cat("mesh: axis ", i, " of ", to_text(axes_), " needs a name, and a size >= 0"));
    }
    if (std::count_if(axes_.begin(), axes_.end(), same_name) > 1) {
      throw ConfigError(cat("mesh: axes must have different names, found twice: ", axis.name));
    }
    if (axis.size == 0 && open != nullptr) {
      throw ConfigError(cat("mesh: ", open->name, " and ", axis.name,
                            " have no size, expected at most one such axis"));
    }
    if (axis.size == 0) {
      open = &axis;
    } else {
      product = std::min<int64_t>(product * axis.size, int64_t{1} << 31);
    }
  }
  const std::string asked = to_text(axes_);
  if (open != nullptr) {
    open->size = static_cast<int>(ranks / product);
    product *= open->size;
  }
  if (product != ranks) {
    throw ConfigError(cat("mesh: ", asked, " does not fit ", ranks, ranks == 1 ? " rank" : " ranks",
                          ": the product of the sizes must be the number of ranks"));
  }
}

size_t MeshLayout::index_of(std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  throw ConfigError(cat("mesh: no axis '", axis, "' in ", to_text(axes_)));
}

int MeshLayout::stride(size_t index) const {
  int stride = 1;
  for (size_t i = index + 1; i < axes_.size(); ++i) stride *= axes_[i].size;
  return stride;
}

int MeshLayout::size(std::string_view axis) const {
  return axes_[index_of(axis)].size;
}

int MeshLayout::coordinate(std::string_view axis, int rank) const {
  const size_t index = index_of(axis);
  return rank / stride(index) % axes_[index].size;
}

std::vector<bool> MeshLayout::varying(const std::vector<std::string_view>& axes) const {
  std::vector<bool> varies(axes_.size());
  for (const std::string_view axis : axes) {
    const size_t index = index_of(axis);
    varies[index] = axes_[index].size > 1;
  }
  return varies;
}

std::string MeshLayout::place_of(int rank) const {
  std::string place;
  for (const MeshAxis& axis : axes_) {
    if (axis.size == 1) continue;
    place += cat(place.empty() ? "" : ", ", axis.name, " ", coordinate(axis.name, rank));
  }
  return place;
}

std::vector<int> MeshLayout::peers(const std::vector<std::string_view>& axes, int rank) const {
  const std::vector<bool> varies = varying(axes);
  std::vector<int> peers{0};
  for (size_t i = 0; i < axes_.size(); ++i) {
    const int at = stride(i), own = rank / at % axes_[i].size;
    const int first = varies[i] ? 0 : own, end = varies[i] ? axes_[i].size : own + 1;
    const std::vector<int> slower = std::exchange(peers, {});
    peers.reserve(slower.size() * static_cast<size_t>(end - first));
    for (const int low : slower) {
      for (int c = first; c < end; ++c) peers.push_back(low + c * at);
    }
  }
  return peers;
}

std::vector<int> MeshLayout::lowest_peers(const std::vector<std::string_view>& axes) const {
  const std::vector<bool> varies = varying(axes);
  std::vector<int> lowest{0};
  for (size_t i = 0; i < axes_.size(); ++i) {
    const int at = varies[i] ? 0 : stride(i);
    const std::vector<int> slower = std::exchange(lowest, {});
    lowest.reserve(slower.size() * static_cast<size_t>(axes_[i].size));
    for (const int low : slower) {
      for (int c = 0; c < axes_[i].size; ++c) lowest.push_back(low + c * at);
    }
  }
  return lowest;
}

std::vector<MeshAxis> hybrid_axes(ProcessGroup& group, int local_rank, int local_size) {
  // On each node the local ranks must be 0, 1, 2, ..., and all nodes must have equally many.
  const auto nodes = group.all_gather_bytes(cat(local_rank, " of ", local_size), "hybrid_axes");
  for (size_t r = 0; r < nodes.size(); ++r) {
    const std::string want = cat(r % static_cast<size_t>(local_size), " of ", local_size);
    if (nodes[r] == want) continue;
    throw ConfigError(cat("mesh: rank ", r, " is local rank ", nodes[r], ", expected local rank ",
                          want,
                          ": hybrid sharding needs equally many consecutive ranks on each node"));
  }
  return {{.name = "replica", .size = group.size() / local_size},
          {.name = "node", .size = local_size}};
}

Mesh::Mesh(ProcessGroup& group, std::vector<MeshAxis> axes)
    : group_(group), layout_(std::move(axes), group.size()) {}

ProcessGroup& Mesh::flatten(const std::vector<std::string_view>& axes) {
  const std::vector<bool> varying = layout_.varying(axes);
  int size = 1;
  for (size_t i = 0; i < varying.size(); ++i) size *= varying[i] ? layout_.axes()[i].size : 1;
  if (size == group_.size()) return group_;
  std::unique_ptr<ProcessGroup>& group = groups_[varying];
  if (group == nullptr) {
    std::string name;
    for (const std::string_view axis : axes) {
      if (layout_.size(axis) > 1) name += cat(name.empty() ? "" : "+", axis);
    }
    if (name.empty()) name = axes.empty() ? "self" : axes.front();
    group = group_.split(layout_.lowest_peers(axes), name);  // same lowest peer: same group
  }
  return *group;
}

}  // namespace shale::comm
