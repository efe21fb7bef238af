#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <cstring>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/embedding_internal.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/embedding.h"

// Forward: a thread owns rows of y. Backward: a stable counting sort orders the positions by id;
// then a thread owns rows of the gradient. It reads the rows of dy that belong to them, in order,
// so no two threads add to the same row. It adds in f32, in a strip of columns at a time that stays
// in the L1 cache.
//
// B, T, C: batch, positions of a sample, width; V: rows of the table.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

template <typename T>
void embedding_fwd_typed(const Exec& exec, const EmbeddingFwdArgs& a) {
  const int64_t length = a.ids.size(1), C = a.table.size(1);
  const int32_t* ids = a.ids.as<int32_t>();
  const T* table = a.table.as<T>();
  const T* positions = a.positions.defined() ? a.positions.as<T>() : nullptr;
  const bool is_part = a.whole_rows > 0;
  T* y = a.y.as<T>();
  parallel_for(exec, a.ids.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t own = ids[r] - a.first_row;
      const T* row = own >= 0 && own < a.table.size(0) ? table + own * C : nullptr;
      const T* position =
          positions == nullptr ? nullptr : positions + (a.first_position + r % length) * C;
      T* out = y + r * C;
      if (position == nullptr && row != nullptr && !is_part) {
        std::memcpy(out, row, static_cast<size_t>(C) * sizeof(T));
        continue;
      }
      // A shard of the table adds 0, so that -0 becomes 0 as in the sum of all shards.
      for_vectors(C, [&](int64_t i, auto part) HWY_ATTR {
        auto value = position != nullptr ? load(position + i, part) : hn::Zero(F32Tag());
        if (row != nullptr) value = hn::Add(load(row + i, part), value);
        store(value, out + i, part);
      });
    }
  });
}

// Arguments for summing rows of dy into rows of a gradient.
template <typename T, typename TGrad>
struct RowSum {
  const T* dy;
  TGrad* grad;  // [rows, C]: the gradient
  int64_t C;
  bool accumulate;
};

// Computes y[i] += x[i], or y[i] = x[i] with start, for n elements.
template <typename T, typename TSum>
void add_strip(const T* x, bool start, TSum* y, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto value = load(x + i, part);
    store(start ? value : hn::Add(load(y + i, part), value), y + i, part);
  });
}

// Computes grad[row] (+)= dy[row_of(0)] + dy[row_of(1)] + ... for `count` rows, at least one.
template <typename T, typename TGrad, class RowOf>
void sum_rows(const RowSum<T, TGrad>& sum, int64_t row, int64_t count, const RowOf& row_of) {
  constexpr int64_t kStrip = 1024;
  float strip[kStrip];
  for (int64_t c = 0; c < sum.C; c += kStrip) {
    const int64_t n = std::min(kStrip, sum.C - c);
    TGrad* grad = sum.grad + row * sum.C + c;
    if (sum.accumulate) add_strip(grad, /*start=*/true, strip, n);
    for (int64_t k = 0; k < count; ++k) {
      add_strip(sum.dy + row_of(k) * sum.C + c, k == 0 && !sum.accumulate, strip, n);
    }
    add_strip(strip, /*start=*/true, grad, n);
  }
}

// Computes rows [begin, end) of the table's gradient.
template <typename T, typename TGrad>
void d_table_rows(const RowSum<T, TGrad>& sum, const SortedIds& sorted, int64_t begin,
                  int64_t end) {
  int64_t v = begin;
  while (v < end) {
    const int64_t first = sorted.offsets[v];
    if (first == sorted.offsets[v + 1]) {  // a run of rows that no id selects
      const int64_t run = v;
      while (v < end && sorted.offsets[v + 1] == first) ++v;
      if (!sum.accumulate) std::fill_n(sum.grad + run * sum.C, (v - run) * sum.C, TGrad{});
      continue;
    }
    const int64_t* order = sorted.order + first;
    sum_rows(sum, v, sorted.offsets[v + 1] - first, [&](int64_t k) { return order[k]; });
    ++v;
  }
}

template <typename T, typename TGrad>
void d_table_typed(const Exec& exec, const EmbeddingBwdArgs& a, const SortedIds& sorted) {
  const int64_t V = a.d_table.size(0);
  const RowSum<T, TGrad> sum = {.dy = a.dy.as<T>(),
                                .grad = a.d_table.as<TGrad>(),
                                .C = a.d_table.size(1),
                                .accumulate = a.accumulate_table};
  const auto rows = [&](int64_t begin, int64_t end) { d_table_rows(sum, sorted, begin, end); };
  // The schedule is dynamic, because frequent ids are close together in real vocabularies.
  parallel_for(exec, V, std::clamp<int64_t>(V / 64, 1, 32), rows, Schedule::kDynamic);
}

template <typename T, typename TGrad>
void d_positions_typed(const Exec& exec, const EmbeddingBwdArgs& a) {
  const int64_t B = a.ids.size(0), length = a.ids.size(1);
  const RowSum<T, TGrad> sum = {.dy = a.dy.as<T>(),
                                .grad = a.d_positions.as<TGrad>(),
                                .C = a.d_positions.size(1),
                                .accumulate = a.accumulate_positions};
  parallel_for(exec, a.d_positions.size(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      const int64_t t = position - a.first_position;
      const bool used = t >= 0 && t < length && B > 0;
      if (used) {
        sum_rows(sum, position, B, [&](int64_t b) { return b * length + t; });
      } else if (!sum.accumulate) {
        std::fill_n(sum.grad + position * sum.C, sum.C, TGrad{});
      }
    }
  });
}

void embedding_fwd_target(const Exec& exec, const EmbeddingFwdArgs& a) {
  dispatch_float(a.table.dtype, [&]<typename T>() { embedding_fwd_typed<T>(exec, a); });
}

void embedding_bwd_target(const Exec& exec, const EmbeddingBwdArgs& a, const SortedIds& sorted) {
  dispatch_float(a.dy.dtype, [&]<typename T>() {
    if (a.d_table.defined()) {
      dispatch_gradient(a.d_table.dtype,
                        [&]<typename TGrad>() { d_table_typed<T, TGrad>(exec, a, sorted); });
    }
    if (a.d_positions.defined()) {
      dispatch_gradient(a.d_positions.dtype,
                        [&]<typename TGrad>() { d_positions_typed<T, TGrad>(exec, a); });
    }
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(embedding_fwd_target);
HWY_EXPORT(embedding_bwd_target);
namespace {

// Throws DataError for ids outside [0, V).
void check_values(const char* op, const View& ids, int64_t V) {
  if (DryRun::is_on()) return;
  const int32_t* id = ids.as<int32_t>();
  const int64_t count = ids.numel();
  for (int64_t i = 0; i < count; ++i) {
    if (id[i] >= 0 && id[i] < V) continue;
    throw DataError(cat(op, ": id [", i / ids.size(1), ", ", i % ids.size(1), "] is ", id[i],
                        ", expected 0 to ", V - 1));
  }
}

// Sorts positions by id with a counting sort. It is serial: it touches 8 bytes per id and 8 bytes
// per row of the table, while the gradient itself has 4 C bytes per row. V: rows of this shard of
// the table, which begins at first_row.
SortedIds sort_ids(const Exec& exec, const View& ids, int64_t first_row, int64_t V) {
  const int64_t count = ids.numel();
  auto* memory = scratch<int64_t>("embedding_bwd", exec, V + 2 + count);
  const SortedIds sorted = {.offsets = memory, .order = memory + V + 2};
  if (DryRun::is_on()) return sorted;
  std::fill_n(sorted.offsets, V + 2, int64_t{0});
  const int32_t* id = ids.as<int32_t>();
  const auto for_own = [&](const auto& body) {
    for (int64_t i = 0; i < count; ++i) {
      if (const int64_t row = id[i] - first_row; row >= 0 && row < V) body(i, row);
    }
  };
  for_own([&](int64_t, int64_t row) { ++sorted.offsets[row + 2]; });
  // From here on, offsets[v + 1] is where the next position with id v goes. When all positions are
  // placed, it is where id v + 1 begins.
  for (int64_t v = 1; v < V + 2; ++v) sorted.offsets[v] += sorted.offsets[v - 1];
  for_own([&](int64_t i, int64_t row) { sorted.order[sorted.offsets[row + 1]++] = i; });
  return sorted;
}

}  // namespace

template <>
void cpu::run(const Exec& exec, const EmbeddingFwdArgs& a) {
  check_values("embedding_fwd", a.ids, a.whole_rows > 0 ? a.whole_rows : a.table.size(0));
  HWY_DYNAMIC_DISPATCH(embedding_fwd_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const EmbeddingBwdArgs& a) {
  SortedIds sorted = {};
  if (a.d_table.defined()) {
    const int64_t V = a.d_table.size(0);
    check_values("embedding_bwd", a.ids, a.whole_rows > 0 ? a.whole_rows : V);
    sorted = sort_ids(exec, a.ids, a.first_row, V);
  }
  HWY_DYNAMIC_DISPATCH(embedding_bwd_target)(exec, a, sorted);
}

}  // namespace shale::kernels
#endif
