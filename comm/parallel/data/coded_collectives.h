#pragma once

#include <functional>
#include <utility>

#include "shale/comm/parallel/data/buffer_spec.h"

namespace shale::comm {

// Values and gradients of a buffer that travel in the codes of ShardingOptions (ZeRO++,
// arXiv:2306.10209, sections 3.1 and 3.3, in one hop): of rows of kFlatAlignment elements, so that
// a rank's shard is some of them.

// All ranks use what the codes say, of their own part too: their values are the same.
class CodedGather {
 public:
  explicit CodedGather(const BufferSpec& spec) : spec_(spec) {}
  Work start(const Tensor& master, const CollectiveOptions& options);
  // After the gather, if one was started.
  void decode(const Tensor& values);

 private:
  const BufferSpec& spec_;
  Tensor codes_;  // of all values
};

// Each rank gets the codes of its shard from all ranks, and adds up what they say.
class CodedReduceScatter {
 public:
  explicit CodedReduceScatter(const BufferSpec& spec) : spec_(spec) {}
  Work start(const Tensor& whole, const CollectiveOptions& options);
  // After the exchange, if one was started: by the tree of all sums.
  void add_to(const Tensor& sum);

 private:
  const BufferSpec& spec_;
  Tensor sent_, received_;  // codes of the whole gradient; all ranks' of this rank's shard
};

// Gathers the matrices of a buffer as the fp8 numbers that products read of them, whose scales
// follow from the largest value of each block over all ranks (kernels/fp8_shard.h).
class Fp8Gather {
 public:
  Fp8Gather(const BufferSpec& spec, const OptimShard& shard) : spec_(spec), shard_(shard) {}
  ~Fp8Gather() { let_go(std::move(exchange_)); }

  // Starts the exchange of maxima, unless it was started since the masters changed.
  void start_exchange();
  void masters_changed();
  // Starts the gather of the codes, from a shard of ShardGroups::reshard if that is defined.
  Work start(const Tensor& small_shard, const CollectiveOptions& options);
  const Tensor& codes() const { return codes_; }  // whole, from start() to free_codes()
  void free_codes() { codes_ = Tensor(); }
  // Gives the parameters the codes, which products read. Who asks for the values of a weight has
  // those of all decoded, to what `values` returns.
  void bind(const std::function<Tensor()>& values);

 private:
  void for_each_matrix(const std::function<void(size_t, const Tensor&)>& visit) const;
  void finish_exchange();
  void decode(const Tensor& values);

  const BufferSpec& spec_;
  const OptimShard& shard_;
  Tensor codes_;
  Tensor largest_;            // of each block of each matrix
  bool has_largest_ = false;  // of these masters, or they are on their way
  Work exchange_;             // of largest_
};

}  // namespace shale::comm
