// Values and gradients of a FlatBuffer that travel in a few bits (ZeRO++, arXiv:2306.10209,
// sections 3.1 and 3.3, in one hop): rows of kFlatAlignment elements, so that a rank's shard is
// some of them.
#include <algorithm>
#include <utility>
#include <vector>

#include "shale/comm/parallel/data/flat_buffer.h"
#include "shale/kernels/block_codes.h"
#include "shale/kernels/tree_sum.h"

namespace shale::comm {
namespace {

constexpr int64_t kStagedBytes = int64_t{4} << 20;  // of sums, while they are made

Tensor as_rows(const Tensor& vector) {
  const int64_t rows = vector.numel() / kFlatAlignment;
  return vector.alias({rows, kFlatAlignment}, {kFlatAlignment, 1});
}

// Room for the codes of so many elements.
Tensor empty_codes(Context& context, kernels::BlockCode code, int64_t numel) {
  const int64_t bytes = kernels::coded_row_bytes(code, kFlatAlignment);
  return empty(context, {numel / kFlatAlignment, bytes}, DType::kU8, MemoryTag::kComm, "codes");
}

// Rows [first, first + count) of codes.
Tensor rows_of(const Tensor& codes, int64_t first, int64_t count) {
  const int64_t bytes = codes.size(1);
  return codes.alias({count, bytes}, {bytes, 1}, first * bytes);
}

}  // namespace

bool FlatBuffer::gathers_codes() const {
  return traits_.in_codes && shared_.options.gather_code.has_value() && !layout_.owner;
}

bool FlatBuffer::reduces_codes() const {
  return traits_.in_codes && shared_.options.reduce_code.has_value() && !layout_.owner;
}

// All ranks use what the codes say, of their own part too: their values are the same.
Work FlatBuffer::start_coded_gather(const CollectiveOptions& options) {
  const kernels::BlockCode code = *shared_.options.gather_code;
  codes_ = empty_codes(shared_.context, code, layout_.numel);
  const int64_t rows = layout_.shard_numel / kFlatAlignment;
  const Tensor own = rows_of(codes_, ranks().rank() * rows, rows);
  kernels::encode_blocks(own.exec(), {.x = as_rows(shard_.master), .y = own, .code = code});
  return ranks().all_gather(own, codes_, options);
}

void FlatBuffer::decode_values() {
  const Tensor codes = std::exchange(codes_, Tensor());
  if (!codes.defined()) return;
  kernels::decode_blocks(values_.exec(),
                         {.x = codes, .y = as_rows(values_), .code = *shared_.options.gather_code});
}

Work FlatBuffer::start_coded_sum(const CollectiveOptions& options) {
  const kernels::BlockCode code = *shared_.options.reduce_code;
  sent_codes_ = empty_codes(shared_.context, code, layout_.numel);
  got_codes_ = empty_codes(shared_.context, code, layout_.numel);
  kernels::encode_blocks(sent_codes_.exec(),
                         {.x = as_rows(whole_grad_), .y = sent_codes_, .code = code});
  return ranks().all_to_all(sent_codes_, got_codes_, options);
}

// To sum_, what the ranks have sent, by the tree of all sums.
void FlatBuffer::add_codes() {
  sent_codes_ = Tensor();
  const Tensor codes = std::exchange(got_codes_, Tensor());
  if (!codes.defined()) return;
  const int ranks = this->ranks().size();
  const int64_t rows = layout_.shard_numel / kFlatAlignment;
  const int64_t most = kStagedBytes / (ranks * kFlatAlignment * int64_t{sizeof(float)});
  const int64_t step = std::clamp<int64_t>(most, 1, std::max<int64_t>(rows, 1));
  const Tensor staged =
      empty(shared_.context, {ranks, step, kFlatAlignment}, DType::kF32, MemoryTag::kComm, name_);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    std::vector<const void*> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor part =
          staged.alias({count, kFlatAlignment}, {kFlatAlignment, 1}, rank * step * kFlatAlignment);
      kernels::decode_blocks(part.exec(), {.x = rows_of(codes, rank * rows + first, count),
                                           .y = part,
                                           .code = *shared_.options.reduce_code});
      parts.push_back(part.data());
    }
    const Tensor to = vector_slice(sum_, first * kFlatAlignment, count * kFlatAlignment);
    void* const output = to.data();
    kernels::tree_sum(to.exec(), {.inputs = parts,
                                  .outputs = std::span(&output, 1),
                                  .count = to.numel(),
                                  .in_dtype = DType::kF32,
                                  .out_dtype = to.dtype()});
  }
}

}  // namespace shale::comm
