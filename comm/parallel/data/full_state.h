#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// The values of a model whose parameters are sharded, whole, in host memory: f32 masters, or what
// frozen parameters have. Ranks give their parts of a whole unit at a time, in pieces of some MiB,
// when the first of its parameters is asked for; they are kept until another unit's is. So whoever
// asks in about the order of the model moves each unit once. What other leaves of the model have
// comes from their ranks.
class FullState {
 public:
  // root: the rank of the shard group, and of ShardGroups::tensor, that gets the values; none: all
  // get them. `parallel` outlives this and is not trained meanwhile.
  explicit FullState(DataParallel& parallel, std::optional<int> root = {});

  // Dense f32 values in the shape of Parameter::whole, until the next call; on ranks that get none,
  // without data. Of several leaves, the first one's parameter stands for all. Collective: all
  // ranks ask for the same parameters in one order, those of other stages too. Throws InternalError
  // for a parameter that is not part of the model.
  View read(const Parameter& parameter);

 private:
  View read_here(const Parameter& parameter);
  View read_leaf(const Parameter& parameter);
  View join_leaves(const Parameter& parameter);
  bool has_all() const;  // this rank gets the values: of this rank's leaves and of the others
  int place_among_experts() const;
  std::optional<int> root_of(const FlatBuffer& buffer) const;
  bool receives(const FlatBuffer& buffer) const;
  void copy(const FlatBuffer& buffer, const FlatEntry& entry);
  void gather(const FlatBuffer& buffer);
  void gather_piece(const FlatBuffer& buffer, int64_t begin, int64_t count);
  Tensor piece_of(const FlatBuffer& buffer, int64_t begin, int64_t count) const;

  DataParallel& parallel_;
  const std::optional<int> root_;
  const FlatBuffer* gathered_ = nullptr;  // whose values are held; null: those of one parameter
  std::vector<float> values_;
  std::vector<float> staged_;  // a piece of all ranks
  std::vector<float> whole_;   // of a parameter that is cut
};

}  // namespace shale::comm
