#include "shale/comm/parallel/expert/expert_exchange.h"

#include <numeric>

#include "shale/base/error.h"
#include "shale/kernels/moe.h"
#include "shale/runtime/autograd/tape.h"

namespace shale::comm {
namespace {

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Tensor first_rows(const Tensor& x, int64_t rows) {
  return x.alias({rows, x.size(1)}, {x.size(1), 1});
}

// Sends rows to the ranks of their experts. Returns the rows that arrive, sorted by own expert.
Tensor send(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows) {
  const int64_t count = total(plan.from);
  const Tensor arrived = empty(rows.context(), {count, rows.size(1)}, rows.dtype());
  exchange.all_to_all(first_rows(rows, total(plan.to)), plan.to, arrived, plan.from);
  Tensor sorted = empty(rows.context(), arrived.shape(), rows.dtype());
  kernels::moe_permute(rows.exec(),
                       {.x = arrived, .sources = plan.sources, .y = sorted, .active = 1});
  return sorted;
}

Tensor send_back(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows) {
  const Tensor leaving = empty(rows.context(), rows.shape(), rows.dtype());
  kernels::moe_combine(rows.exec(), {.x = rows, .rows = plan.places, .y = leaving});
  Tensor back = empty(rows.context(), {plan.rows, rows.size(1)}, rows.dtype());
  exchange.all_to_all(leaving, plan.from, first_rows(back, total(plan.to)), plan.to);
  return back;
}

}  // namespace

ExpertRows expert_rows(ExpertExchange& exchange, const Tensor& offsets, int64_t rows) {
  const std::vector<int32_t> begins = to_host<int32_t>(offsets);
  const auto experts = begins.size() - 1, ranks = static_cast<size_t>(exchange.ranks());
  if (experts % ranks != 0) {
    throw ShapeError(cat("expert_rows: ", experts, " experts on ", ranks,
                         " ranks, expected a multiple of the number of ranks"));
  }
  const size_t own = experts / ranks, me = static_cast<size_t>(exchange.rank());
  std::vector<int32_t> mine;
  for (size_t e = 0; e < experts; ++e) mine.push_back(begins[e + 1] - begins[e]);
  const std::vector<int32_t> all = exchange.gather(mine);
  ExpertRows plan{.to = std::vector<int64_t>(ranks), .from = std::vector<int64_t>(ranks)};
  plan.rows = rows;
  // Number of rows that rank r sends to this rank's expert e.
  const auto count = [&](size_t r, size_t e) { return all[r * experts + me * own + e]; };
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t e = 0; e < own; ++e) {
      plan.to[r] += mine[r * own + e];
      plan.from[r] += count(r, e);
    }
  }
  std::vector<int32_t> first = {0};
  for (size_t e = 0; e < own; ++e) {
    int32_t end = first.back();
    for (size_t r = 0; r < ranks; ++r) end += count(r, e);
    first.push_back(end);
  }
  std::vector<int32_t> places, next = first;
  std::vector<int32_t> sources(static_cast<size_t>(first.back()));
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t e = 0; e < own; ++e) {
      for (int32_t i = 0; i < count(r, e); ++i) {
        sources[static_cast<size_t>(next[e])] = static_cast<int32_t>(places.size());
        places.push_back(next[e]++);
      }
    }
  }
  Context& context = offsets.context();
  const int64_t arrived = std::ssize(places);
  plan.offsets = from_host<int32_t>(context, first, {std::ssize(first)});
  plan.places = from_host<int32_t>(context, places, {arrived, 1});
  plan.sources = from_host<int32_t>(context, sources, {arrived});
  return plan;
}

Tensor dispatch(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows) {
  check_contiguous("dispatch", "rows", rows);
  Tensor sorted = send(exchange, plan, rows);
  record("dispatch", {rows}, {&sorted}, [&exchange, plan](BackwardArgs& args) {
    return Grads{send_back(exchange, plan, args.dy())};
  });
  return sorted;
}

Tensor collect(ExpertExchange& exchange, const ExpertRows& plan, const Tensor& rows) {
  check_contiguous("collect", "rows", rows);
  Tensor back = send_back(exchange, plan, rows);
  record("collect", {rows}, {&back},
         [&exchange, plan](BackwardArgs& args) { return Grads{send(exchange, plan, args.dy())}; });
  return back;
}

}  // namespace shale::comm
