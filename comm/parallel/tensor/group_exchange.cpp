#include "shale/comm/parallel/tensor/group_exchange.h"

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"

namespace shale::comm {
namespace {

CollectiveOptions options_of(const Tensor& x, std::string_view tag) {
  return {.tag = tag, .stream = x.exec().stream, .traffic = Traffic::kActivations};
}

// The sum of tensors of one shape in a dtype, rounded once.
Tensor tree_sum(const std::vector<Tensor>& parts, DType dtype) {
  Tensor sum = empty(parts[0].context(), parts[0].shape(), dtype);
  std::vector<const void*> inputs;
  for (const Tensor& part : parts) inputs.push_back(part.data());
  void* const output = sum.data();
  kernels::tree_sum(sum.exec(), {.inputs = inputs,
                                 .outputs = std::span(&output, 1),
                                 .count = sum.numel(),
                                 .in_dtype = parts[0].dtype(),
                                 .out_dtype = dtype});
  return sum;
}

// The size of the rows' dimension times a / b.
Shape with_rows(const nn::Exchange& exchange, const Shape& shape, int64_t a, int64_t b) {
  Shape other = shape;
  int64_t& rows = other[exchange.row_dim(shape)];
  rows = rows * a / b;
  return other;
}

// One of so many equal parts of a dense tensor.
View part_of(const Tensor& x, int part, int parts) {
  const int64_t count = x.numel() / parts;
  return x.view().flat(part * count, count);
}

}  // namespace

Tensor GroupExchange::gather(const Tensor& slice) {
  Tensor all = empty(slice.context(), with_rows(*this, slice.shape(), ranks(), 1), slice.dtype());
  for (int part = 0; part < row_parts(); ++part) {
    group_.all_gather(part_of(slice, part, row_parts()), part_of(all, part, row_parts()),
                      options_of(slice, gather_tag_));
  }
  return all;
}

// A rank with several leaves keeps their sum in f32, so that it is rounded where one rank with all
// of them would.
Tensor GroupExchange::sum_slices(const std::vector<Tensor>& parts) {
  const DType dtype = parts.at(0).dtype();
  if (ranks() == 1) return parts.size() == 1 ? parts[0] : tree_sum(parts, dtype);
  const Tensor mine = parts.size() == 1 ? parts[0] : tree_sum(parts, DType::kF32);
  Tensor slice = empty(mine.context(), with_rows(*this, mine.shape(), 1, ranks()), mine.dtype());
  for (int part = 0; part < row_parts(); ++part) {
    group_.reduce_scatter_sum(part_of(mine, part, row_parts()), part_of(slice, part, row_parts()),
                              options_of(mine, sum_tag_));
  }
  if (slice.dtype() == dtype) return slice;
  Tensor rounded = empty(slice.context(), slice.shape(), dtype);
  kernels::axpby(rounded.exec(), {.a = slice, .y = rounded});
  return rounded;
}

void GroupExchange::gather_leaves(const Tensor& all) {
  if (ranks() == 1) return;
  const int64_t count = all.numel() / ranks();
  const Tensor flat = all.alias({all.numel()}, {1});
  group_.all_gather(flat.alias({count}, {1}, rank() * count), flat, options_of(all, leaves_tag_));
}

}  // namespace shale::comm
