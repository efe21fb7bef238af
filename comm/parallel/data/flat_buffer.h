#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_gradient.h"
#include "shale/comm/parallel/data/flat_values.h"

namespace shale::comm {

// Parameters one after another in flat buffers: their values, f32 masters and gradients, each whole
// or this rank's shard of it, as the stage says.
//
//   stage 0     values, masters and gradients are whole
//   stages 1, 2 values are whole, but after an optimizer step only this rank's part is up to date
//               until it is gathered; masters are shards. f32 values are their own masters.
//   stage 3     the masters' shard is all there is; the values are gathered from it, cast to the
//               compute dtype first, into a buffer that lives while the parameters are in use.
// One rank has all shards of a small buffer (FlatLayout::owner): sums and values go from and to it.
// Masters may live in another context than the rest: then they are stepped there, and `compute` of
// the shard, on the device, follows them. Frozen parameters have values only. What every leaf of a
// model has lies leaf after leaf, and its gradients are added over the tensor ranks first.
class FlatBuffer {
 public:
  // Allocates, and writes initial values. Throws InternalError for a parameter that is in another
  // buffer already.
  FlatBuffer(ShardingContext& shared, std::string name, const BufferTraits& traits,
             const std::vector<Parameter*>& parameters);
  FlatBuffer(const FlatBuffer&) = delete;
  FlatBuffer& operator=(const FlatBuffer&) = delete;
  void detach();  // the parameters know nothing of this any more

  const BufferSpec& spec() const { return spec_; }
  const FlatLayout& layout() const { return spec_.layout; }
  ProcessGroup& ranks() const { return spec_.ranks(); }
  bool is_sharded() const { return spec_.is_sharded(); }
  const FlatEntry* find(const Parameter& parameter) const;  // null: it is not here
  const OptimShard& shard() const { return shard_; }
  // This rank's part: `first` and `count` in the parameter, `offset` in what master() returns.
  const std::vector<OptimSpan>& spans() const { return shard_.spans; }
  // f32 masters, or the values of frozen parameters: a shard if is_sharded(), else whole.
  const Tensor& master() const { return shard_.master; }

  FlatValues& values() { return values_; }
  const FlatValues& values() const { return values_; }
  FlatGradient* gradient() { return gradient_ ? &*gradient_ : nullptr; }  // null: of frozen ones

 private:
  const BufferSpec spec_;
  OptimShard shard_;
  std::optional<FlatGradient> gradient_;
  FlatValues values_;
};

// The gradient of the other use of tables (TableUse::kApart), whose values a FlatBuffer has.
class ApartGradient {
 public:
  ApartGradient(ShardingContext& shared, std::string name, const BufferTraits& traits,
                const std::vector<Parameter*>& parameters);
  void detach();
  FlatGradient& gradient() { return gradient_; }

 private:
  const BufferSpec spec_;
  OptimShard shard_;
  FlatGradient gradient_;
};

}  // namespace shale::comm
