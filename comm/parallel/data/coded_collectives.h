#pragma once

#include <functional>
#include <utility>

#include "shale/comm/parallel/data/buffer_spec.h"

namespace shale::comm {

// Collectives that send a buffer's values and gradients as the quantization codes of
// ShardingOptions. They are those of ZeRO++ (arXiv:2306.10209, sections 3.1 and 3.3), but in one
// hop. Rows of codes have kFlatAlignment elements, so a rank's shard has whole rows.

// Gathers values as codes. All ranks decode all shards, even their own, to have equal values.
class CodedGather {
 public:
  explicit CodedGather(const BufferSpec& spec) : spec_(spec) {}
  Work start(const Tensor& master, const CollectiveOptions& options);
  // Decodes the gathered codes into `values`. Call it after the gather; does nothing without one.
  void decode(const Tensor& values);

 private:
  const BufferSpec& spec_;
  Tensor codes_;  // codes of the whole buffer's values
};

// Adds gradients over the ranks. Each rank receives the codes of its own shard from all ranks,
// decodes them and adds.
class CodedReduceScatter {
 public:
  explicit CodedReduceScatter(const BufferSpec& spec) : spec_(spec) {}
  Work start(const Tensor& whole, const CollectiveOptions& options);
  // Adds the received gradients to `sum` in tree order. Call it after the exchange. Does nothing if
  // no exchange was started.
  void add_to(const Tensor& sum);

 private:
  const BufferSpec& spec_;
  Tensor sent_, received_;  // codes of the whole gradient; codes of this shard from all ranks
};

// Gathers the matrices of a buffer in the fp8 format that GEMMs read. A block's scale follows from
// its largest value over all ranks (kernels/fp8_shard.h).
class Fp8Gather {
 public:
  Fp8Gather(const BufferSpec& spec, const OptimShard& shard) : spec_(spec), shard_(shard) {}
  ~Fp8Gather() { let_go(std::move(exchange_)); }

  // Starts the exchange of the largest values, if that was not yet done for the current masters.
  void start_exchange();
  void masters_changed();
  // Starts the gather of the codes. Gathers `small_shard` over ShardGroups::reshard if defined.
  Work start(const Tensor& small_shard, const CollectiveOptions& options);
  const Tensor& codes() const { return codes_; }  // all codes; valid from start() to free_codes()
  void free_codes() { codes_ = Tensor(); }
  // Makes the parameters refer to the codes, which fp8 GEMMs read. If an operation reads plain
  // values instead, all weights are decoded into the tensor that `values` returns.
  void bind(const std::function<Tensor()>& values);

 private:
  void for_each_matrix(const std::function<void(size_t, const Tensor&)>& visit) const;
  void finish_exchange();
  void decode(const Tensor& values);

  const BufferSpec& spec_;
  const OptimShard& shard_;
  Tensor codes_;
  Tensor largest_;            // largest value of each block of each matrix
  bool has_largest_ = false;  // largest_ belongs to the current masters, or will after exchange_
  Work exchange_;             // all-reduce of largest_
};

}  // namespace shale::comm
