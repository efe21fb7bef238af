#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_gradient.h"
#include "shale/comm/parallel/data/flat_values.h"

namespace shale::comm {

// Parameters stored one after another in flat buffers: values, f32 masters and gradients. The stage
// decides which of these a rank has whole, and which as its shard:
//
//   stage 0     values, masters and gradients are whole
//   stages 1, 2 values are whole, but an optimizer step updates only this rank's part until they
//               are gathered; masters are shards. f32 values are their own masters.
//   stage 3     only the shard of the masters is kept; values are cast to the compute dtype and
//               gathered into a buffer that lives while the parameters are in use
//
// One rank owns all of a small buffer (FlatLayout::owner): it receives the sums and sends the
// values. The optimizer updates offloaded masters in host memory; they are then copied to the
// shard's `compute` on the device. Frozen parameters have values only. Parameters that every tensor
// rank has are stored rank after rank, and their gradients are added over the tensor ranks first.
class FlatBuffer {
 public:
  // Allocates the buffers and writes the initial values. Throws InternalError for a parameter that
  // is already in another buffer.
  FlatBuffer(ShardingContext& shared, std::string name, const BufferTraits& traits,
             const std::vector<Parameter*>& parameters);
  FlatBuffer(const FlatBuffer&) = delete;
  FlatBuffer& operator=(const FlatBuffer&) = delete;
  void detach();  // disconnects the parameters from this buffer

  const BufferSpec& spec() const { return spec_; }
  const FlatLayout& layout() const { return spec_.layout; }
  ProcessGroup& ranks() const { return spec_.ranks(); }
  bool is_sharded() const { return spec_.is_sharded(); }
  const FlatEntry* find(const Parameter& parameter) const;  // null if it is not in this buffer
  const OptimShard& shard() const { return shard_; }
  // The parts of parameters that this rank has. `first` and `count` are elements of the parameter;
  // `offset` is an element of master().
  const std::vector<OptimSpan>& spans() const { return shard_.spans; }
  // f32 masters, or values of frozen parameters: this rank's shard if is_sharded(), otherwise
  // whole.
  const Tensor& master() const { return shard_.master; }

  FlatValues& values() { return values_; }
  const FlatValues& values() const { return values_; }
  FlatGradient* gradient() { return gradient_ ? &*gradient_ : nullptr; }  // null if frozen

 private:
  const BufferSpec spec_;
  OptimShard shard_;
  std::optional<FlatGradient> gradient_;
  FlatValues values_;
};

// Gradient of the second use of tied tables (TableUse::kApart). A FlatBuffer has their values.
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
