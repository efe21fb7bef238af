#include "shale/comm/sums/compressed_sum.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/one_bit.h"
#include "shale/runtime/optim/shard.h"

namespace shale::comm {
namespace {

using kernels::kSignBlock;
using kernels::kSignWords;
using kernels::sign_blocks;

// View of rows [first, first + count) of packed blocks.
Tensor rows_of(const Tensor& packed, int64_t first, int64_t count) {
  return packed.alias({count, kSignWords}, {kSignWords, 1}, first * kSignWords);
}

// Packs vectors into consecutive blocks, and holds the blocks in all steps of the exchange.
class PackedVectors {
 public:
  PackedVectors(ProcessGroup& group, const Exec& exec, std::span<const OneBitVector> vectors)
      : group_(group), exec_(exec), vectors_(vectors) {
    for (const OneBitVector& vector : vectors) {
      first_block_.push_back(blocks_);
      lengths_.push_back(vector.value.numel());
      blocks_ += sign_blocks(lengths_.back());
    }
    share_ = (blocks_ + group.size() - 1) / group.size();
  }

  bool empty() const { return blocks_ == 0; }

  void pack() {
    Context& context = vectors_.front().value.context();
    const Shape shape = {share_ * group_.size(), kSignWords};
    blocks_of_all_ = empty_blocks(context, shape);
    received_ = empty_blocks(context, shape);
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const OneBitVector& vector = vectors_[i];
      kernels::sign_pack(exec_, {.value = vector.value,
                                 .grad = vector.grad.defined() ? vector.grad.view() : View{},
                                 .mask = vector.mask,
                                 .owed = vector.owed,
                                 .packed = blocks_of(i, 0, sign_blocks(lengths_[i])),
                                 .value_factor = vector.value_factor,
                                 .grad_factor = vector.grad_factor});
    }
    // Zero the blocks after the last vector, because they are sent as well.
    const Tensor rest = rows_of(blocks_of_all_, blocks_, shape[0] - blocks_);
    kernels::fill(exec_, {.y = rest, .value = 0});
  }

  Work exchange(const CollectiveOptions& options) {
    return group_.all_to_all(blocks_of_all_, received_, options);
  }

  // Computes the means of this rank's slice and writes them to its position among all blocks.
  void average() {
    const ShardReplicas place = {.rank = group_.rank(), .size = group_.size()};
    const std::vector<ElementRange> owned = place.owned(lengths_);
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const auto [first, count] = owned[i];
      check_owed(vectors_[i], count);
      if (count == 0) continue;
      const int64_t block = first / kSignBlock, blocks = sign_blocks(count);
      const int64_t in_slice = first_block_[i] + block - group_.rank() * share_;
      kernels::sign_mean(exec_, {.parts = received_.alias({group_.size(), blocks, kSignWords},
                                                          {share_ * kSignWords, kSignWords, 1},
                                                          in_slice * kSignWords),
                                 .mask = vector_slice(vectors_[i].mask, first, count),
                                 .owed = vectors_[i].owner_owed,
                                 .packed = blocks_of(i, block, blocks)});
    }
  }

  Work gather(const CollectiveOptions& options) {
    return group_.all_gather(rows_of(blocks_of_all_, group_.rank() * share_, share_),
                             blocks_of_all_, options);
  }

  void unpack() {
    for (size_t i = 0; i < vectors_.size(); ++i) {
      kernels::sign_unpack(exec_, {.packed = blocks_of(i, 0, sign_blocks(lengths_[i])),
                                   .mask = vectors_[i].mask,
                                   .value = vectors_[i].value});
    }
  }

 private:
  static Tensor empty_blocks(Context& context, const Shape& shape) {
    return shale::empty(context, shape, DType::kI32, MemoryTag::kComm, "packed signs");
  }
  static void check_owed(const OneBitVector& vector, int64_t count) {
    if (vector.owner_owed.numel() == count) return;
    throw ShapeError(cat("compressed mean: owner_owed is [", vector.owner_owed.numel(),
                         "], expected [", count,
                         "], one for each element whose mean this rank computes"));
  }
  Tensor blocks_of(size_t vector, int64_t first, int64_t count) const {
    return rows_of(blocks_of_all_, first_block_[vector] + first, count);
  }

  ProcessGroup& group_;
  Exec exec_;
  std::span<const OneBitVector> vectors_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> first_block_;  // first block of each vector
  int64_t blocks_ = 0;                // number of blocks of all vectors
  int64_t share_ = 0;                 // number of blocks of a rank's slice
  Tensor blocks_of_all_;              // this rank's input, then the means
  Tensor received_;                   // this rank's slice of the blocks of all ranks
};

}  // namespace

void compressed_mean(ProcessGroup& group, const Exec& exec, std::span<const OneBitVector> vectors,
                     const std::function<void(const Work&)>& wait) {
  PackedVectors packed(group, exec, vectors);
  if (packed.empty()) return;
  const CollectiveOptions options = {.tag = "compressed mean",
                                     .async = true,
                                     .stream = exec.stream,
                                     .traffic = Traffic::kGradients};
  packed.pack();
  wait(packed.exchange(options));
  packed.average();
  wait(packed.gather(options));
  packed.unpack();
}

ShardReplicas replicas_of(ProcessGroup& group, std::function<void(const Work&)> wait) {
  return {.rank = group.rank(),
          .size = group.size(),
          .mean = [&group, wait = std::move(wait)](const Exec& exec,
                                                   std::span<const OneBitVector> vectors) {
            compressed_mean(group, exec, vectors, wait);
          }};
}

}  // namespace shale::comm
