// Checks of the arguments, and the loop over tasks. The arithmetic is in attention_fwd.cpp and
// attention_bwd.cpp, compiled once per instruction set.

#include "kernels/cpu/attention.h"

#include <atomic>

#include "kernels/cpu/attention_internal.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/error.h"

namespace shale::kernels::cpu {
namespace {

using attention::HeadView;
using attention::Problem;
using attention::TaskKind;

// One of the [B, T, heads, D] arguments.
HeadView head_view(const char* op, const char* arg, const View& view, const Shape& want,
                   DType dtype) {
  check_shape(op, arg, view, want);
  check_dtype(op, arg, view, dtype);
  if (view.size(3) > 1 && view.stride(3) != 1) {
    throw ShapeError(cat(op, ": ", arg, " is ", view, " with strides ", view.strides,
                         ", want stride 1 in the last dimension"));
  }
  return {view.data, view.stride(0), view.stride(1), view.stride(2)};
}

void check_sizes(const char* op, const View& q, const View& k) {
  check_dtype(op, "q", q, kComputeDTypes);
  check_defined(op, "k", k);
  if (q.ndim() != 4) throw ShapeError(cat(op, ": q is ", q, ", want shape [B,Tq,H,D]"));
  if (k.ndim() != 4) throw ShapeError(cat(op, ": k is ", k, ", want shape [B,Tk,Hkv,D]"));
  if (q.size(3) < 1 || q.size(3) > attention::kMaxHeadSize) {
    throw ShapeError(
        cat(op, ": q is ", q, ", want a last dimension from 1 to ", attention::kMaxHeadSize));
  }
  const int64_t heads = q.size(2), kv_heads = k.size(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    throw ShapeError(cat(op, ": k is ", k, ", want a number of heads that divides q's ", heads));
  }
}

// What forward and backward have in common. Args: AttentionFwdArgs or AttentionBwdArgs.
template <typename Args>
Problem make_problem(const char* op, const Args& a) {
  check_sizes(op, a.q, a.k);
  Problem p;
  p.dtype = a.q.dtype;
  p.batch = a.q.size(0), p.queries = a.q.size(1), p.heads = a.q.size(2), p.head_size = a.q.size(3);
  p.keys = a.k.size(1), p.kv_heads = a.k.size(2);
  p.scale = a.scale, p.causal = a.causal;
  const Shape kv_shape{p.batch, p.keys, p.kv_heads, p.head_size};
  p.q = head_view(op, "q", a.q, a.q.shape, p.dtype);
  p.k = head_view(op, "k", a.k, kv_shape, p.dtype);
  p.v = head_view(op, "v", a.v, kv_shape, p.dtype);
  p.out = head_view(op, "out", a.out, a.q.shape, p.dtype);
  check_shape(op, "lse", a.lse, {p.batch, p.heads, p.queries});
  check_dtype(op, "lse", a.lse, DType::kF32);
  p.lse = a.lse.template as<float>();
  p.lse_batch_stride = a.lse.stride(0);
  p.lse_head_stride = a.lse.stride(1);
  p.lse_row_stride = a.lse.stride(2);
  return p;
}

// Workers take tasks from a counter: which worker runs a task changes no bit of its result.
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

}  // namespace

void attention_fwd(const Exec& exec, const AttentionFwdArgs& a) {
  constexpr const char* kOp = "attention_fwd";
  const Problem p = make_problem(kOp, a);
  const bool few = p.queries <= attention::kFewQueries;
  run_tasks(kOp, exec, p, few ? attention::fwd_few(p) : attention::fwd_blocks(p));
}

void attention_bwd(const Exec& exec, const AttentionBwdArgs& a) {
  constexpr const char* kOp = "attention_bwd";
  Problem p = make_problem(kOp, a);
  p.dout = head_view(kOp, "dout", a.dout, a.q.shape, p.dtype);
  p.dq = head_view(kOp, "dq", a.dq, a.q.shape, p.dtype);
  p.dk = head_view(kOp, "dk", a.dk, a.k.shape, p.dtype);
  p.dv = head_view(kOp, "dv", a.dv, a.k.shape, p.dtype);
  if (p.batch * p.kv_heads >= attention::kEnoughTasks) {
    run_tasks(kOp, exec, p, attention::bwd_heads(p));
  } else {
    run_tasks(kOp, exec, p, attention::bwd_keys(p));
    run_tasks(kOp, exec, p, attention::bwd_queries(p));
  }
}

}  // namespace shale::kernels::cpu
