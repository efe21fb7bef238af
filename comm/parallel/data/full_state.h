#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Reads whole, unsharded parameter values in host memory: f32 masters, or the stored values of
// frozen parameters. The first request for a parameter of a unit makes the ranks gather the whole
// unit. f32 masters of CPU ranks are gathered at once, others in pieces of some MiB. The unit is
// kept until a parameter of another unit is requested. Requests in about model order therefore move
// each unit once. Shards of tensor-parallel layers and of experts come from their ranks.
class FullState {
 public:
  // root: the rank in the shard group and in ShardGroups::tensor that gets the values; nullopt: all
  // ranks. `parallel` must outlive this object and must not be trained during its lifetime.
  explicit FullState(DataParallel& parallel, std::optional<int> root = {});

  // Returns dense f32 values in the shape of Parameter::whole, valid until the next call. They may
  // be the masters themselves: do not change them. Ranks that get no values get a view without
  // data. A process with several tensor ranks passes the parameter of the first of these ranks.
  // Throws InternalError for a parameter that is not part of the model. Collective: all ranks, also
  // of other pipeline stages, request the same parameters in the same order.
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
  const FlatBuffer* gathered_ = nullptr;  // buffer in values_; null: values_ has a single parameter
  bool at_once_ = false;                  // shards are gathered into values_ directly
  std::vector<float> values_;
  std::vector<float> staged_;  // one piece of all ranks' shards, copied from the device
  std::vector<float> whole_;   // a parameter assembled from shards
};

}  // namespace shale::comm
