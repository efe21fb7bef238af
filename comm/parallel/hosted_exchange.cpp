#include "shale/comm/parallel/hosted_exchange.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/tensor/exchange_pieces.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {
namespace {

using comm::run_of;
using comm::tree_sum;

Tensor flat(const Tensor& x) {
  return x.alias({x.numel()}, {1});
}

Tensor shaped(const Tensor& vector, const Shape& shape) {
  return vector.alias(shape, contiguous_strides(shape));
}

void copy(const Tensor& from, const Tensor& to) {
  kernels::copy(to.exec(), {.x = from, .y = to});
}

// Returns `shape` with the size of the row dimension multiplied by a / b.
Shape with_rows(const Exchange& exchange, Shape shape, int64_t a, int64_t b) {
  int64_t& rows = shape[exchange.row_dim(shape)];
  rows = rows * a / b;
  return shape;
}

}  // namespace

MeshLine::MeshLine(ProcessGroup& group, HostedRanks* ranks, int members, const Options& options)
    : group_(group),
      members_(members),
      overlap_(options.overlap),
      meeting_(members > 1 ? std::make_unique<HostedRanks::Meeting>(*ranks, members) : nullptr) {
  size_t i = 0;
  for (const char* const what : {"gather", "sum", "parts", "counts", "heads", "ring"}) {
    names_[i++] = cat(options.name, " ", what);
  }
}

MeshLine::MeshLine(std::shared_ptr<ProcessGroup> group, HostedRanks* ranks, int members,
                   const Options& options)
    : MeshLine(*group, ranks, members, options) {
  own_group_ = std::move(group);
}

Tensor MeshLine::Round::take(int member) {
  if (finish != nullptr) {
    for (const Work& work : works) work.wait();
    std::exchange(finish, nullptr)();
  }
  return out[static_cast<size_t>(member)];
}

std::shared_ptr<MeshLine::Round> MeshLine::join(int member, std::string_view what, const Tensor& x,
                                                const Tensor& into,
                                                const std::function<void(Round&)>& act) {
  const auto count = static_cast<size_t>(members_);
  if (open_ == nullptr) {
    open_ = std::make_shared<Round>();
    open_->x.resize(count);
    open_->into.resize(count);
    open_->out.resize(count);
  }
  const std::shared_ptr<Round> round = open_;
  round->x[static_cast<size_t>(member)] = x;
  round->into[static_cast<size_t>(member)] = into;
  const auto start = [&] {
    open_ = nullptr;
    check_alike(what, round->x);
    act(*round);
  };
  try {
    if (meeting_ != nullptr) {
      meeting_->wait(what, start);
    } else {
      start();
    }
  } catch (...) {
    open_ = nullptr;  // discards the failed round, so that the next run() starts a new one
    throw;
  }
  return round;
}

void MeshLine::check_alike(std::string_view what, const std::vector<Tensor>& x) const {
  const Tensor& first = x.front();
  for (size_t m = 1; m < x.size(); ++m) {
    if (x[m].shape() == first.shape() && x[m].dtype() == first.dtype()) continue;
    throw CommError(cat(what, ": rank ", rank_of(0), " has ", first.shape(), " of ",
                        dtype_name(first.dtype()), ", and rank ", rank_of(static_cast<int>(m)),
                        " has ", x[m].shape(), " of ", dtype_name(x[m].dtype()),
                        "; expected equal tensors on all ranks"));
  }
}

HostedExchange::HostedExchange(std::shared_ptr<MeshLine> line, int member)
    : Exchange(line->size(), line->rank_of(member)), line_(std::move(line)), member_(member) {}

Arrival HostedExchange::meet(std::string_view what, const Tensor& x, const Tensor& into,
                             const std::function<void(Round&)>& act) {
  const auto round = line_->join(member_, what, x, into, act);
  return Arrival([round, member = member_] { return round->take(member); });
}

CollectiveOptions HostedExchange::options_of(const Tensor& x, Of of, bool async) const {
  return {.tag = line_->name_of(of),
          .async = async && line_->overlap_,
          .stream = x.exec().stream,
          .traffic = Traffic::kActivations};
}

Tensor HostedExchange::gather(const Tensor& slice) {
  return gathered(slice, /*async=*/false).get();
}

Arrival HostedExchange::begin_gather(const Tensor& slice) {
  return gathered(slice, /*async=*/true);
}

// All members get the same gathered tensor, and must not write to it.
Arrival HostedExchange::gathered(const Tensor& slice, bool async) {
  if (ranks() == 1) return Arrival([slice] { return slice; });
  return meet(line_->name_of(Of::kGather), slice, {}, [&](Round& round) {
    const Tensor all =
        empty(slice.context(), with_rows(*this, slice.shape(), ranks(), 1), slice.dtype());
    Tensor mine = flat(slice);
    if (line_->members() > 1) {
      for (int m = 0; m < line_->members(); ++m) {
        copy(flat(round.x[static_cast<size_t>(m)]), run_of(all, line_->rank_of(m), ranks()));
      }
      mine = run_of(all, line_->group().rank(), line_->group().size());
    }
    if (line_->group().size() > 1) {
      round.works.push_back(
          line_->group().all_gather(mine, flat(all), options_of(slice, Of::kGather, async)));
    }
    round.finish = [&round, all] {
      for (Tensor& out : round.out) out = shaped(all, all.shape());
    };
  });
}

Tensor HostedExchange::sum_slices(const Tensor& part) {
  return summed(part, /*async=*/false).get();
}

Arrival HostedExchange::begin_sum_slices(const Tensor& part) {
  return summed(part, /*async=*/true);
}

// If a process has several members, their sum stays in f32 until it is added over processes. It is
// rounded only once, as in one process with all members.
Arrival HostedExchange::summed(const Tensor& part, bool async) {
  if (ranks() == 1) return Arrival([part] { return part; });
  return meet(line_->name_of(Of::kSum), part, {}, [&](Round& round) {
    ProcessGroup& group = line_->group();
    Tensor mine = part;
    if (line_->members() > 1) {
      mine = empty(part.context(), part.shape(), group.size() > 1 ? DType::kF32 : part.dtype());
      tree_sum(round.x, mine);
    }
    Tensor slice = mine;
    if (group.size() > 1) {
      slice = empty(mine.context(), {mine.numel() / group.size()}, mine.dtype());
      round.works.push_back(
          group.reduce_scatter_sum(flat(mine), slice, options_of(mine, Of::kSum, async)));
    }
    const Shape shape = with_rows(*this, part.shape(), 1, ranks());
    round.finish = [&round, mine, slice, shape, dtype = part.dtype()] {
      Tensor rounded = slice;
      if (slice.dtype() != dtype) {
        rounded = empty(slice.context(), slice.shape(), dtype);
        kernels::axpby(rounded.exec(), {.a = slice, .y = rounded});
      }
      const auto count = static_cast<int64_t>(round.out.size());
      for (int64_t m = 0; m < count; ++m) {
        round.out[static_cast<size_t>(m)] = shaped(run_of(rounded, m, count), shape);
      }
    };
  });
}

// All members get the first member's tensor. The tensors of the other members stay as they are.
Arrival HostedExchange::parts_gathered(const Tensor& all, bool async) {
  if (ranks() == 1) return Arrival([all] { return all; });
  return meet(line_->name_of(Of::kParts), all, {}, [&](Round& round) {
    ProcessGroup& group = line_->group();
    const Tensor first = round.x.front();
    for (int m = 1; m < line_->members(); ++m) {
      copy(run_of(round.x[static_cast<size_t>(m)], line_->rank_of(m), ranks()),
           run_of(first, line_->rank_of(m), ranks()));
    }
    if (group.size() > 1) {
      round.works.push_back(group.all_gather(run_of(first, group.rank(), group.size()), flat(first),
                                             options_of(first, Of::kParts, async)));
    }
    round.finish = [&round, first] {
      for (Tensor& out : round.out) out = first;
    };
  });
}

void HostedExchange::gather_parts(const Tensor& all) {
  const Tensor first = parts_gathered(all, /*async=*/false).get();
  if (first.data() != all.data()) copy(flat(first), flat(all));
}

Arrival HostedExchange::begin_gather_parts(const Tensor& all) {
  return parts_gathered(all, /*async=*/true);
}

void HostedExchange::add_counts(const Tensor& counts) {
  if (ranks() == 1) return;
  meet(line_->name_of(Of::kCounts), counts, {}, [&](Round& round) {
    const Tensor first = flat(round.x.front());
    if (line_->members() > 1) tree_sum(round.x, first);
    if (line_->group().size() > 1) {
      line_->group().all_reduce_sum(first, options_of(first, Of::kCounts, /*async=*/false));
    }
    round.finish = [&round, first] {
      for (size_t m = 1; m < round.x.size(); ++m) copy(first, flat(round.x[m]));
    };
  }).get();
}

// Data sent between processes is laid out [processes, sending members, receiving members, ...].
Tensor HostedExchange::all_to_all(const Tensor& slices) {
  if (ranks() == 1) return slices;
  return meet(line_->name_of(Of::kHeads), slices, {},
              [&](Round& round) {
                ProcessGroup& group = line_->group();
                const int64_t h = line_->members(), P = group.size();
                const int64_t count = slices.numel() / ranks(), block = h * count;
                const Shape shape = slices.shape();
                Tensor send = flat(slices);
                if (h > 1) {
                  send = empty(slices.context(), {P * h * block}, slices.dtype());
                  for (int64_t m = 0; m < h; ++m) {
                    copy(round.x[static_cast<size_t>(m)].alias({P, block}, {block, 1}),
                         send.alias({P, block}, {h * block, 1}, m * block));
                  }
                }
                Tensor given = send;
                if (P > 1) {
                  given = empty_like(send);
                  group.all_to_all(send, given, options_of(slices, Of::kHeads, /*async=*/false));
                }
                round.finish = [&round, given, shape, h, P, count, block] {
                  for (int64_t m = 0; m < h; ++m) {
                    Tensor& out = round.out[static_cast<size_t>(m)];
                    if (h == 1) {
                      out = shaped(given, shape);
                      continue;
                    }
                    out = empty(given.context(), shape, given.dtype());
                    copy(given.alias({P, h, count}, {h * block, block, 1}, m * count),
                         out.alias({P, h, count}, {block, count, 1}));
                  }
                };
              })
      .get();
}

Arrival HostedExchange::begin_shift(const Tensor& x, const Tensor& into, int by, ShiftOf of) {
  const Of what = of == ShiftOf::kRing ? Of::kRing : of == ShiftOf::kRows ? Of::kGather : Of::kSum;
  // The name contains `by`, so that it is an error if members pass different values.
  return meet(cat(line_->name_of(what), " by ", by), x, into,
              [&](Round& round) { shift(round, by, options_of(x, what, /*async=*/true)); });
}

// Sends with all_to_all_v, although only pairs of ranks exchange data: this call is ordered,
// counted and watched like any other collective, and overlaps with the caller's work on every
// backend.
void HostedExchange::shift(Round& round, int by, const CollectiveOptions& options) const {
  ProcessGroup& group = line_->group();
  const int h = line_->members(), n = ranks(), P = group.size(), p = group.rank();
  const Tensor like = round.x.front();
  const int64_t count = like.numel();
  if (h == 1) {
    const auto to = [&](int rank) {
      std::vector<int64_t> counts(static_cast<size_t>(P));
      counts[static_cast<size_t>(rank % P)] = count;
      return counts;
    };
    round.works.push_back(
        group.all_to_all_v(flat(like), to(p + by), flat(round.into[0]), to(p + P - by), options));
    round.finish = [&round] { round.out = round.into; };
    return;
  }
  // Counts and slices are ordered by process, then by sending member.
  std::vector<int64_t> gives(static_cast<size_t>(P)), gets(static_cast<size_t>(P));
  std::vector<size_t> from, to;
  for (int q = 0; q < P; ++q) {
    for (int m = 0; m < h; ++m) {
      if ((p * h + m + by) % n / h == q) {
        from.push_back(static_cast<size_t>(m));
        gives[static_cast<size_t>(q)] += count;
      }
      const int target = (q * h + m + by) % n;
      if (target / h == p) {
        to.push_back(static_cast<size_t>(target % h));
        gets[static_cast<size_t>(q)] += count;
      }
    }
  }
  const Tensor send = empty(like.context(), {h * count}, like.dtype());
  for (int64_t i = 0; i < h; ++i) {
    copy(flat(round.x[from[static_cast<size_t>(i)]]), run_of(send, i, h));
  }
  Tensor given = send;
  if (P > 1) {
    given = empty_like(send);
    round.works.push_back(group.all_to_all_v(send, gives, given, gets, options));
  }
  round.finish = [&round, send, given, to, h] {
    for (int64_t i = 0; i < h; ++i) {
      copy(run_of(given, i, h), flat(round.into[to[static_cast<size_t>(i)]]));
    }
    round.out = round.into;
  };
}

Arrival HostedExchange::begin_pass(const Tensor& x) {
  if (ranks() == 1) return Arrival([x] { return x; });
  return begin_shift(x, empty_like(x), 1, ShiftOf::kRing);
}

}  // namespace shale::comm
