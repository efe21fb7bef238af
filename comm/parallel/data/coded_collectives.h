#pragma once

#include <functional>
#include <utility>

#include "shale/comm/parallel/data/buffer_spec.h"

namespace shale::comm {

// Collectives that send a buffer's values and gradients in the codes of ShardingOptions (ZeRO++,
// arXiv:2306.10209, sections 3.1 and 3.3, in one hop). Coded rows have kFlatAlignment elements, so
// a rank's shard has whole rows.

// Gathers values. All ranks decode all shards, also their own, so that their values are equal.
class CodedGather {
 public:
  explicit CodedGather(const BufferSpec& spec) : spec_(spec) {}
  Work start(const Tensor& master, const CollectiveOptions& options);
  // Decodes the gathered codes into `values`. Call it after the gather; no-op if none was started.
  void decode(const Tensor& values);

 private:
  const BufferSpec& spec_;
  Tensor codes_;  // codes of the whole buffer's values
};

// Sums gradients in codes: each rank receives the codes of its shard from all ranks and adds the
// decoded values.
class CodedReduceScatter {
 public:
  explicit CodedReduceScatter(const BufferSpec& spec) : spec_(spec) {}
  Work start(const Tensor& whole, const CollectiveOptions& options);
  // Adds the received gradients to `sum` in tree order. Call it after the exchange, if any.
  void add_to(const Tensor& sum);

 private:
  const BufferSpec& spec_;
  Tensor sent_, received_;  // codes: of the whole gradient; of this shard, from all ranks
};

// Gathers the matrices of a buffer in the fp8 format that GEMMs read. The scales follow from each
// block's largest value over all ranks (kernels/fp8_shard.h).
class Fp8Gather {
 public:
  Fp8Gather(const BufferSpec& spec, const OptimShard& shard) : spec_(spec), shard_(shard) {}
  ~Fp8Gather() { let_go(std::move(exchange_)); }

  // Starts the exchange of maxima, unless it was started since the masters last changed.
  void start_exchange();
  void masters_changed();
  // Starts the gather of the codes, from the shard of ShardGroups::reshard if that is defined.
  Work start(const Tensor& small_shard, const CollectiveOptions& options);
  const Tensor& codes() const { return codes_; }  // all codes; valid from start() to free_codes()
  void free_codes() { codes_ = Tensor(); }
  // Sets the codes, which GEMMs read, in the parameters. A reader of plain values causes all
  // weights to be decoded into the tensor returned by `values`.
  void bind(const std::function<Tensor()>& values);

 private:
  void for_each_matrix(const std::function<void(size_t, const Tensor&)>& visit) const;
  void finish_exchange();
  void decode(const Tensor& values);

  const BufferSpec& spec_;
  const OptimShard& shard_;
  Tensor codes_;
  Tensor largest_;            // maximum of each block of each matrix
  bool has_largest_ = false;  // largest_ matches the masters, or is being exchanged
  Work exchange_;             // all-reduce of largest_
};

}  // namespace shale::comm
