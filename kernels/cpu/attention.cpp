// Task scheduling of attention. The arithmetic is in attention_fwd.cpp and attention_bwd.cpp,
// compiled once per instruction set. Head sizes are 1 to 256; the bits do not depend on
// exec.threads.

#include "shale/kernels/attention.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/attention_internal.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"

namespace shale::kernels::cpu {
namespace {

using attention::Problem;
using attention::TaskKind;

constexpr const char* kForward = "attention_fwd";
constexpr const char* kBackward = "attention_bwd";

// Workers take tasks from a counter. The result of a task does not depend on its worker.
void run_tasks(const char* op, const Exec& exec, const Problem& p, const TaskKind& kind) {
  if (kind.tasks == 0) return;
  const int64_t workers = std::clamp<int64_t>(exec.threads, 1, kind.tasks);
  const int64_t stride = attention::round_up(kind.scratch_floats, attention::kMaxLanes);
  float* const memory = scratch<float>(op, exec, workers * stride);
  std::atomic<int64_t> next{0};
  parallel_for(exec, workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < kind.tasks;) {
        kind.run(p, task, memory + worker * stride);
      }
    }
  });
}

void forward(const Exec& exec, const Problem& p) {
  const bool few = p.queries <= attention::kFewQueries;
  run_tasks(kForward, exec, p, few ? attention::fwd_few(p) : attention::fwd_blocks(p));
}

void backward(const Exec& exec, const Problem& p) {
  if (p.batch * p.kv_heads >= attention::kEnoughTasks) {
    run_tasks(kBackward, exec, p, attention::bwd_heads(p));
  } else {
    run_tasks(kBackward, exec, p, attention::bwd_keys(p));
    run_tasks(kBackward, exec, p, attention::bwd_queries(p));
  }
}

// ---- Sequences of different lengths: each runs as a separate Problem, and its outputs beyond its
// length are filled with zeros. ----

HeadView of_sequence(HeadView view, int64_t batch, DType dtype) {
  auto* const data = static_cast<std::byte*>(view.data);
  view.data = data + batch * view.batch_stride * dtype_size(dtype);
  return view;
}

int64_t length_of(const int32_t* lengths, int64_t batch, int64_t longest) {
  return lengths == nullptr ? longest : std::clamp<int64_t>(lengths[batch], 0, longest);
}

Problem sequence(const Problem& all, int64_t batch) {
  Problem p = all;
  p.batch = 1;
  p.queries = length_of(all.q_lengths, batch, all.queries);
  p.keys = length_of(all.k_lengths, batch, all.keys);
  for (HeadView* view : {&p.q, &p.k, &p.v, &p.out, &p.dout, &p.dq, &p.dk, &p.dv}) {
    if (view->data != nullptr) *view = of_sequence(*view, batch, p.dtype);
  }
  p.lse += batch * p.lse_batch_stride;
  if (p.first_keys != nullptr) p.first_keys += batch * all.queries;
  return p;
}

// Returns whether the sequences of a batch have lengths, so that they must run as separate
// problems.
bool have_lengths(const Problem& p) {
  return p.q_lengths != nullptr || p.k_lengths != nullptr;
}

// Returns the first visible key of every query of the batch; empty if no keys are hidden.
std::vector<int32_t> first_keys(const Problem& all) {
  std::vector<int32_t> keys;
  if (!all.hides_first_keys() || DryRun::is_on()) return keys;
  keys.reserve(size_t(all.batch * all.queries));
  for (int64_t b = 0; b < all.batch; ++b) {
    HiddenKeys hidden;
    hidden.queries = static_cast<int>(length_of(all.q_lengths, b, all.queries));
    hidden.keys = static_cast<int>(length_of(all.k_lengths, b, all.keys));
    hidden.window = static_cast<int>(all.window);
    hidden.query_places = all.query_places, hidden.key_places = all.key_places;
    if (all.given_first_keys != nullptr) hidden.given = all.given_first_keys + b * all.queries;
    for (int i = 0; i < all.queries; ++i) {
      keys.push_back(i < hidden.queries ? hidden.first_key(i) : hidden.keys);
    }
  }
  return keys;
}

// Zeroes rows [row, end) of all heads of the first sequence.
void zero_rows(const Problem& p, const HeadView& view, int64_t heads, int64_t row, int64_t end) {
  const int64_t size = dtype_size(p.dtype);
  for (; row < end; ++row) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t offset = row * view.row_stride + h * view.head_stride;
      std::memset(static_cast<std::byte*>(view.data) + offset * size, 0,
                  size_t(p.head_size * size));
    }
  }
}

}  // namespace

template <>
void run(const Exec& exec, const AttentionFwdArgs& a) {
  Problem all{attention_problem(kForward, a)};
  const std::vector<int32_t> first = first_keys(all);
  if (!first.empty()) all.first_keys = first.data();
  if (!have_lengths(all)) return forward(exec, all);
  for (int64_t b = 0; b < all.batch; ++b) {
    const Problem p = sequence(all, b);
    forward(exec, p);
    zero_rows(p, p.out, p.heads, p.queries, all.queries);
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = p.queries; i < all.queries; ++i) {
        p.lse_at(0, h, i) = -std::numeric_limits<float>::infinity();
      }
    }
  }
}

template <>
void run(const Exec& exec, const AttentionBwdArgs& a) {
  Problem all{attention_problem(kBackward, a)};
  const std::vector<int32_t> first = first_keys(all);
  if (!first.empty()) all.first_keys = first.data();
  if (!have_lengths(all)) return backward(exec, all);
  for (int64_t b = 0; b < all.batch; ++b) {
    const Problem p = sequence(all, b);
    backward(exec, p);
    zero_rows(p, p.dq, p.heads, p.queries, all.queries);
    zero_rows(p, p.dk, p.kv_heads, p.keys, all.keys);
    zero_rows(p, p.dv, p.kv_heads, p.keys, all.keys);
  }
}

}  // namespace shale::kernels::cpu
