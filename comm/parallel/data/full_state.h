#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Reader of whole, unsharded parameter values in host memory: f32 masters, or the stored values of
// frozen parameters. When the first parameter of a unit is requested, the ranks gather the whole
// unit: f32 masters of CPU ranks at once, others in pieces of some MiB. It is kept until another
// unit is requested. Requests in about model order thus move each unit once. Tensor and expert
// shards come from their ranks.
class FullState {
 public:
  // root: the rank of the shard group, and of ShardGroups::tensor, that gets the values; none: all
  // ranks. `parallel` must outlive this object and must not be trained during its lifetime.
  explicit FullState(DataParallel& parallel, std::optional<int> root = {});

  // Returns dense f32 values in the shape of Parameter::whole, valid until the next call. They may
  // be the masters themselves: do not change them. Ranks that get no values get a view without
  // data. A process with several tensor ranks passes the parameter of the first of these ranks.
  // Collective: all ranks, also of other stages, request the same parameters in one order. Throws
  // InternalError for a parameter that is not part of the model.
  View read(const Parameter& parameter);

 private:
  View read_here(const Parameter& parameter);
  View read_local(const Parameter& parameter);
  View join_shards(const Parameter& parameter);
  bool has_all() const;  // true if this rank gets the values
  int place_among_experts() const;
  std::optional<int> root_of(const FlatBuffer& buffer) const;
  bool receives(const FlatBuffer& buffer) const;
  View read_whole(const FlatBuffer& buffer, const FlatEntry& entry, const Shape& shape);
  void gather(const FlatBuffer& buffer);
  void gather_piece(const FlatBuffer& buffer, int64_t begin, int64_t count);
  Tensor piece_of(const FlatBuffer& buffer, int64_t begin, int64_t count) const;

  DataParallel& parallel_;
  const std::optional<int> root_;
  const FlatBuffer* gathered_ = nullptr;  // buffer in values_; null: values_ has one parameter
  bool at_once_ = false;                  // shards are gathered into values_ directly
  std::vector<float> values_;
  std::vector<float> staged_;  // one piece of the shards of all ranks, copied from the device
  std::vector<float> whole_;   // a parameter assembled from shards
};

}  // namespace shale::comm
