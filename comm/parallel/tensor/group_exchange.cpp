#include "shale/comm/parallel/tensor/group_exchange.h"

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"

namespace shale::comm {
namespace {

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

CollectiveOptions GroupExchange::options_of(const Tensor& x, std::string_view tag,
                                            bool async) const {
  return {.tag = tag,
          .async = async && overlap_,
          .stream = x.exec().stream,
          .traffic = Traffic::kActivations};
}

std::vector<Work> GroupExchange::gather_into(const Tensor& slice, const Tensor& all, bool async) {
  std::vector<Work> works;
  for (int part = 0; part < row_parts(); ++part) {
    works.push_back(group_.all_gather(part_of(slice, part, row_parts()),
                                      part_of(all, part, row_parts()),
                                      options_of(slice, gather_tag_, async)));
  }
  return works;
}

std::vector<Work> GroupExchange::scatter_into(const Tensor& mine, const Tensor& slice, bool async) {
  std::vector<Work> works;
  for (int part = 0; part < row_parts(); ++part) {
    works.push_back(group_.reduce_scatter_sum(part_of(mine, part, row_parts()),
                                              part_of(slice, part, row_parts()),
                                              options_of(mine, sum_tag_, async)));
  }
  return works;
}

Work GroupExchange::leaves_into(const Tensor& all, bool async) {
  if (ranks() == 1) return {};
  const int64_t count = all.numel() / ranks();
  const Tensor flat = all.alias({all.numel()}, {1});
  return group_.all_gather(flat.alias({count}, {1}, rank() * count), flat,
                           options_of(all, leaves_tag_, async));
}

Tensor GroupExchange::gather(const Tensor& slice) {
  Tensor all = empty(slice.context(), with_rows(*this, slice.shape(), ranks(), 1), slice.dtype());
  gather_into(slice, all, /*async=*/false);
  return all;
}

nn::Arrival GroupExchange::begin_gather(const Tensor& slice) {
  if (ranks() == 1) return nn::Arrival([slice] { return slice; });
  const Tensor all =
      empty(slice.context(), with_rows(*this, slice.shape(), ranks(), 1), slice.dtype());
  return nn::Arrival([slice, all, works = gather_into(slice, all, /*async=*/true)] {
    for (const Work& work : works) work.wait();
    return all;
  });
}

Tensor GroupExchange::sum_slices(const std::vector<Tensor>& parts) {
  return sum_of(parts, /*async=*/false).get();
}

nn::Arrival GroupExchange::begin_sum_slices(const std::vector<Tensor>& parts) {
  return sum_of(parts, /*async=*/true);
}

// A rank with several leaves keeps their sum in f32, so that it is rounded where one rank with all
// of them would.
nn::Arrival GroupExchange::sum_of(const std::vector<Tensor>& parts, bool async) {
  const DType dtype = parts.at(0).dtype();
  if (ranks() == 1) {
    const Tensor sum = parts.size() == 1 ? parts[0] : tree_sum(parts, dtype);
    return nn::Arrival([sum] { return sum; });
  }
  const Tensor mine = parts.size() == 1 ? parts[0] : tree_sum(parts, DType::kF32);
  const Tensor slice =
      empty(mine.context(), with_rows(*this, mine.shape(), 1, ranks()), mine.dtype());
  return nn::Arrival([mine, slice, dtype, works = scatter_into(mine, slice, async)] {
    for (const Work& work : works) work.wait();
    if (slice.dtype() == dtype) return slice;
    Tensor rounded = empty(slice.context(), slice.shape(), dtype);
    kernels::axpby(rounded.exec(), {.a = slice, .y = rounded});
    return rounded;
  });
}

void GroupExchange::gather_leaves(const Tensor& all) {
  leaves_into(all, /*async=*/false);
}

void GroupExchange::add_counts(const Tensor& counts) {
  if (ranks() == 1) return;
  group_.all_reduce_sum(counts.alias({counts.numel()}, {1}),
                        options_of(counts, counts_tag_, /*async=*/false));
}

Tensor GroupExchange::all_to_all(const Tensor& slices) {
  if (ranks() == 1) return slices;
  const Tensor given = empty_like(slices);
  group_.all_to_all(slices.view().flat(0, slices.numel()), given.view().flat(0, given.numel()),
                    options_of(slices, heads_tag_, /*async=*/false));
  return given;
}

// An all-to-all of pairs: it has the order, the accounts and the watchdog of collectives, and goes
// on beside the caller's work on every backend.
nn::Arrival GroupExchange::begin_shift(const Tensor& x, const Tensor& into, int by,
                                       nn::ShiftOf of) {
  const auto count = [&](int rank) {
    std::vector<int64_t> counts(static_cast<size_t>(ranks()));
    counts[static_cast<size_t>(rank % ranks())] = x.numel();
    return counts;
  };
  const std::string& tag = of == nn::ShiftOf::kRing   ? ring_tag_
                           : of == nn::ShiftOf::kRows ? gather_tag_
                                                      : sum_tag_;
  const Work work = group_.all_to_all_v(
      x.view().flat(0, x.numel()), count(rank() + by), into.view().flat(0, x.numel()),
      count(rank() + ranks() - by), options_of(x, tag, /*async=*/true));
  return nn::Arrival([x, into, work] {
    work.wait();
    return into;
  });
}

nn::Arrival GroupExchange::begin_pass(const Tensor& x) {
  if (ranks() == 1) return nn::Arrival([x] { return x; });
  return begin_shift(x, empty_like(x), 1, nn::ShiftOf::kRing);
}

nn::Arrival GroupExchange::begin_gather_leaves(const Tensor& all) {
  return nn::Arrival([all, work = leaves_into(all, /*async=*/true)] {
    work.wait();
    return all;
  });
}

}  // namespace shale::comm
