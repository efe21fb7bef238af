#include "shale/comm/parallel/tensor/vocabulary_loss.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"

namespace shale::comm {
namespace {

constexpr const char* kOp = "vocabulary_cross_entropy";

Tensor rows_of(const Tensor& x, int64_t begin, int64_t end) {
  Shape shape = x.shape();
  shape[0] = end - begin;
  return x.alias(shape, x.strides(), begin * x.strides()[0]);
}

struct VocabularyLoss {
  Exchange& exchange;
  int64_t vocab;

  // Computes the losses of some rows. If `write_grad`, overwrites their logits with gradients.
  void losses_of(const Tensor& logits, const Tensor& targets, const Tensor& losses,
                 const Exec& exec, bool write_grad) const {
    const int64_t rows = targets.size(0), first_column = exchange.rank() * logits.size(1);
    const Tensor stats =
        empty(targets.context(), {exchange.ranks(), rows, 3}, DType::kF32, MemoryTag::kComm);
    kernels::cross_entropy_stats(
        exec, {.logits = logits,
               .targets = targets,
               .stats = stats.alias({rows, 3}, {3, 1}, exchange.rank() * rows * 3),
               .first_column = first_column,
               .vocab = vocab});
    exchange.gather_parts(stats);
    kernels::cross_entropy_grad(exec, {.logits = logits,
                                       .targets = targets,
                                       .stats = stats,
                                       .losses = losses,
                                       .first_column = first_column,
                                       .vocab = vocab,
                                       .write_grad = write_grad});
  }
};

// Calls body(begin, end, logits) for `chunk_rows` rows at a time.
template <typename Body>
void for_chunks(const Tensor& x, const Tensor& table, int64_t chunk_rows, const Body& body) {
  const int64_t rows = x.size(0);
  const Tensor buffer = empty(x.context(), {std::min(chunk_rows, rows), table.size(0)}, x.dtype());
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t end = std::min(rows, begin + chunk_rows);
    const Tensor logits = rows_of(buffer, 0, end - begin);
    kernels::gemm(x.exec(), {.a = rows_of(x, begin, end), .b = transposed(table), .c = logits});
    body(begin, end, logits);
  }
}

// Where backward writes the gradients of x and of the table.
struct Destinations {
  Grads grads = Grads(2);
  Tensor table;
  bool accumulate = false;

  Destinations(BackwardArgs& args, const Tensor& x, const Tensor& weight) {
    if (args.needs(0)) grads[0] = empty_like(x);
    emit_grad(args, {1, weight, x.dtype()}, grads, [&](const Tensor& to, bool add) {
      table = to;
      accumulate = add;
      // If x has no rows, no GEMM writes the table's gradient.
      if (x.size(0) == 0 && !add) kernels::fill(to.exec(), {.y = to, .value = 0});
    });
  }

  // Adds what rows [begin, end) contribute to both gradients. d_logits: gradients of their logits.
  void add(int64_t begin, int64_t end, const Tensor& d_logits, const Tensor& x,
           const Tensor& weight) {
    const Exec& exec = d_logits.exec();
    if (grads[0].defined()) {
      kernels::gemm(exec, {.a = d_logits, .b = weight, .c = rows_of(grads[0], begin, end)});
    }
    if (!table.defined()) return;
    kernels::gemm(exec, {.a = transposed(d_logits),
                         .b = rows_of(x, begin, end),
                         .c = table,
                         .accumulate = accumulate});
    accumulate = true;
  }
};

// Multiplies x by a scalar that is on the device. An undefined factor stands for 1.
void scale_by(const Tensor& factor, const Tensor& x) {
  if (factor.defined()) kernels::mul(x.exec(), {.a = x, .b = factor, .y = x});
}

void check(const Exchange& exchange, const Tensor& x, const Tensor& table, const Tensor& targets,
           int64_t vocab) {
  check_contiguous(kOp, "x", x);
  check_shape(kOp, "the table", table, {table.size(0), x.size(1)});
  check_dtype(kOp, "the table", table, x.dtype());
  check_shape(kOp, "targets", targets, {x.size(0)});
  check_dtype(kOp, "targets", targets, DType::kI32);
  const int64_t columns = table.size(0) * exchange.ranks();
  if (vocab >= 1 && vocab <= columns) return;
  throw ShapeError(cat(kOp, ": vocab is ", vocab, ", expected 1 to ", columns,
                       ", the rows of the tables of all ranks"));
}

}  // namespace

Tensor vocabulary_cross_entropy(Exchange& exchange, const Tensor& x, const Tensor& table,
                                const Tensor& targets, int64_t vocab, int64_t chunk_rows) {
  if (amp::wants_low({x, table})) {
    return vocabulary_cross_entropy(exchange, amp::to_low(x), amp::to_low(table), targets, vocab,
                                    chunk_rows);
  }
  check(exchange, x, table, targets, vocab);
  Context& context = targets.context();
  const int64_t rows = targets.size(0);
  const bool records = needs_grad(context, {x, table});
  const bool keeps_logits = records && (chunk_rows <= 0 || chunk_rows >= rows);
  const int64_t chunk = chunk_rows > 0 ? chunk_rows : std::max<int64_t>(rows, 1);

  const VocabularyLoss loss{exchange, vocab};
  const Tensor losses = empty(context, {rows}, DType::kF32);
  SavedTensor kept;
  for_chunks(x, table, chunk, [&](int64_t begin, int64_t end, const Tensor& logits) {
    loss.losses_of(logits, rows_of(targets, begin, end), rows_of(losses, begin, end),
                   context.exec(), keeps_logits);
    if (keeps_logits) kept = {kOp, logits};
  });
  Tensor total = empty(context, {}, DType::kF32);
  kernels::sum(context.exec(), {.x = losses, .y = total});
  if (!records) return total;
  const StepHold step(context);
  record(kOp, {x, table}, {&total},
         [loss, chunk, step, kept, x = SavedTensor(kOp, x), table = SavedTensor(kOp, table),
          targets = SavedTensor(kOp, targets)](BackwardArgs& args) {
           const Tensor rows_again = x.get(), weight = table.get();
           Destinations to(args, rows_again, weight);
           const Tensor factor = multiple_of_seed(args);
           if (kept.defined()) {
             const bool copies = args.retains() && factor.defined();
             const Tensor d_logits = copies ? mul(kept.get(), factor) : kept.get();
             if (!copies) scale_by(factor, d_logits);
             to.add(0, d_logits.size(0), d_logits, rows_again, weight);
             return to.grads;
           }
           const Tensor wanted = targets.get();
           const Tensor again = empty(wanted.context(), wanted.shape(), DType::kF32);
           for_chunks(rows_again, weight, chunk,
                      [&](int64_t begin, int64_t end, const Tensor& logits) {
                        loss.losses_of(logits, rows_of(wanted, begin, end),
                                       rows_of(again, begin, end), step.exec(wanted), true);
                        scale_by(factor, logits);
                        to.add(begin, end, logits, rows_again, weight);
                      });
           return to.grads;
         });
  return total;
}

}  // namespace shale::comm
