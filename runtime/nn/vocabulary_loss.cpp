#include "shale/runtime/nn/vocabulary_loss.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"

namespace shale::nn {
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

  size_t leaves() const { return static_cast<size_t>(exchange.own_leaves()); }
  int64_t first_column(size_t leaf, const Tensor& table) const {
    return (exchange.first_leaf() + static_cast<int64_t>(leaf)) * table.size(0);
  }

  // Turns the logits of some rows into gradients, if `write_grad`; losses of these rows.
  void losses_of(const std::vector<Tensor>& logits, const std::vector<Tensor>& tables,
                 const Tensor& targets, const Tensor& losses, const Exec& exec,
                 bool write_grad) const {
    const int64_t rows = targets.size(0);
    const Tensor stats =
        empty(targets.context(), {exchange.leaves(), rows, 3}, DType::kF32, MemoryTag::kComm);
    for (size_t i = 0; i < leaves(); ++i) {
      const int64_t leaf = exchange.first_leaf() + static_cast<int64_t>(i);
      kernels::cross_entropy_stats(exec, {.logits = logits[i],
                                          .targets = targets,
                                          .stats = stats.alias({rows, 3}, {3, 1}, leaf * rows * 3),
                                          .first_column = first_column(i, tables[i]),
                                          .vocab = vocab});
    }
    exchange.gather_leaves(stats);
    for (size_t i = 0; i < leaves(); ++i) {
      kernels::cross_entropy_grad(exec, {.logits = logits[i],
                                         .targets = targets,
                                         .stats = stats,
                                         .losses = i == 0 ? losses.view() : View{},
                                         .first_column = first_column(i, tables[i]),
                                         .vocab = vocab,
                                         .write_grad = write_grad});
      if (!write_grad) break;  // all make the same losses
    }
  }
};

std::vector<Tensor> logits_for(const std::vector<Tensor>& x, const std::vector<Tensor>& tables,
                               int64_t rows) {
  std::vector<Tensor> logits;
  for (size_t i = 0; i < x.size(); ++i) {
    logits.push_back(empty(x[i].context(), {rows, tables[i].size(0)}, x[i].dtype()));
  }
  return logits;
}

// Calls body(begin, end, logits of each leaf) for so many rows at a time.
template <typename Body>
void for_chunks(const std::vector<Tensor>& x, const std::vector<Tensor>& tables, int64_t chunk_rows,
                const Body& body) {
  const int64_t rows = x[0].size(0);
  const std::vector<Tensor> buffers = logits_for(x, tables, std::min(chunk_rows, rows));
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t end = std::min(rows, begin + chunk_rows);
    std::vector<Tensor> logits;
    for (size_t i = 0; i < x.size(); ++i) {
      logits.push_back(rows_of(buffers[i], 0, end - begin));
      kernels::gemm(
          x[i].exec(),
          {.a = rows_of(x[i], begin, end), .b = transposed(tables[i]), .c = logits.back()});
    }
    body(begin, end, logits);
  }
}

// Where the gradients go that backward makes, of x and of the tables.
struct Destinations {
  Grads grads;
  std::vector<Tensor> tables;
  std::vector<bool> accumulate;

  Destinations(BackwardArgs& args, const std::vector<Tensor>& x, const std::vector<Tensor>& weights)
      : grads(2 * x.size()), tables(x.size()), accumulate(x.size()) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (args.needs(static_cast<int>(i))) grads[i] = empty_like(x[i]);
      const int input = static_cast<int>(x.size() + i);
      emit_grad(args, {input, weights[i], x[i].dtype()}, grads, [&](const Tensor& to, bool add) {
        tables[i] = to;
        accumulate[i] = add;
        // No product will write what was promised.
        if (x[i].size(0) == 0 && !add) kernels::fill(to.exec(), {.y = to, .value = 0});
      });
    }
  }

  // From the gradients of some rows' logits.
  void add(size_t i, int64_t begin, int64_t end, const Tensor& d_logits, const Tensor& x,
           const Tensor& weight) {
    const Exec& exec = d_logits.exec();
    if (grads[i].defined()) {
      kernels::gemm(exec, {.a = d_logits, .b = weight, .c = rows_of(grads[i], begin, end)});
    }
    if (!tables[i].defined()) return;
    kernels::gemm(exec, {.a = transposed(d_logits),
                         .b = rows_of(x, begin, end),
                         .c = tables[i],
                         .accumulate = accumulate[i]});
    accumulate[i] = true;
  }
};

// x *= factor, a scalar on the device; undefined: 1.
void scale_by(const Tensor& factor, const Tensor& x) {
  if (factor.defined()) kernels::mul(x.exec(), {.a = x, .b = factor, .y = x});
}

struct Saved {
  std::vector<SavedTensor> x, tables, logits;
  SavedTensor targets;
};

std::vector<Tensor> got(const std::vector<SavedTensor>& saved) {
  std::vector<Tensor> tensors;
  for (const SavedTensor& one : saved) tensors.push_back(one.get());
  return tensors;
}

void check(const Exchange& exchange, const std::vector<Tensor>& x,
           const std::vector<Tensor>& tables, const Tensor& targets, int64_t vocab) {
  const auto leaves = static_cast<size_t>(exchange.own_leaves());
  if (x.size() != leaves || tables.size() != leaves) {
    throw ShapeError(cat(kOp, ": ", x.size(), " tensors of rows and ", tables.size(),
                         " tables, want one for each of this rank's ", leaves, " leaves"));
  }
  for (size_t i = 0; i < leaves; ++i) {
    check_contiguous(kOp, "x", x[i]);
    check_shape(kOp, "x", x[i], x[0].shape());
    check_shape(kOp, "a table", tables[i], {tables[0].size(0), x[0].size(1)});
    check_dtype(kOp, "a table", tables[i], x[i].dtype());
  }
  check_shape(kOp, "targets", targets, {x[0].size(0)});
  check_dtype(kOp, "targets", targets, DType::kI32);
  const int64_t columns = tables[0].size(0) * exchange.leaves();
  if (vocab >= 1 && vocab <= columns) return;
  throw ShapeError(
      cat(kOp, ": vocab is ", vocab, ", want 1 to ", columns, ", the rows of all tables"));
}

}  // namespace

Tensor vocabulary_cross_entropy(Exchange& exchange, const std::vector<Tensor>& x,
                                const std::vector<Tensor>& tables, const Tensor& targets,
                                int64_t vocab, int64_t chunk_rows) {
  if (!x.empty() && amp::wants_low({x[0], tables.at(0)})) {
    std::vector<Tensor> low_x, low_tables;
    for (const Tensor& one : x) low_x.push_back(amp::to_low(one));
    for (const Tensor& one : tables) low_tables.push_back(amp::to_low(one));
    return vocabulary_cross_entropy(exchange, low_x, low_tables, targets, vocab, chunk_rows);
  }
  check(exchange, x, tables, targets, vocab);
  Context& context = targets.context();
  const int64_t rows = targets.size(0);
  std::vector<Tensor> inputs = x;
  inputs.insert(inputs.end(), tables.begin(), tables.end());
  bool records = false;
  for (const Tensor& input : inputs) records = records || needs_grad(context, {input});
  const bool keeps_logits = records && (chunk_rows <= 0 || chunk_rows >= rows);
  const int64_t chunk = chunk_rows > 0 ? chunk_rows : std::max<int64_t>(rows, 1);

  const VocabularyLoss loss{exchange, vocab};
  const Tensor losses = empty(context, {rows}, DType::kF32);
  Saved saved;
  for_chunks(x, tables, chunk, [&](int64_t begin, int64_t end, const std::vector<Tensor>& logits) {
    loss.losses_of(logits, tables, rows_of(targets, begin, end), rows_of(losses, begin, end),
                   context.exec(), keeps_logits);
    if (!keeps_logits) return;
    for (const Tensor& one : logits) saved.logits.emplace_back(kOp, one);
  });
  Tensor total = empty(context, {}, DType::kF32);
  kernels::sum(context.exec(), {.x = losses, .y = total});
  if (!records) return total;
  for (const Tensor& one : x) saved.x.emplace_back(kOp, one);
  for (const Tensor& one : tables) saved.tables.emplace_back(kOp, one);
  saved.targets = {kOp, targets};
  const StepHold step(context);
  record(kOp, inputs, {&total}, [loss, saved, chunk, step](BackwardArgs& args) {
    const std::vector<Tensor> rows_again = got(saved.x), weights = got(saved.tables);
    Destinations to(args, rows_again, weights);
    const Tensor factor = multiple_of_seed(args);
    if (!saved.logits.empty()) {
      const std::vector<Tensor> d_logits = got(saved.logits);
      for (size_t i = 0; i < d_logits.size(); ++i) {
        scale_by(factor, d_logits[i]);
        to.add(i, 0, d_logits[i].size(0), d_logits[i], rows_again[i], weights[i]);
      }
      return to.grads;
    }
    const Tensor all_targets = saved.targets.get();
    const Tensor again = empty(all_targets.context(), all_targets.shape(), DType::kF32);
    for_chunks(rows_again, weights, chunk,
               [&](int64_t begin, int64_t end, const std::vector<Tensor>& logits) {
                 loss.losses_of(logits, weights, rows_of(all_targets, begin, end),
                                rows_of(again, begin, end), step.exec(all_targets), true);
                 for (size_t i = 0; i < logits.size(); ++i) {
                   scale_by(factor, logits[i]);
                   to.add(i, begin, end, logits[i], rows_again[i], weights[i]);
                 }
               });
    return to.grads;
  });
  return total;
}

}  // namespace shale::nn
