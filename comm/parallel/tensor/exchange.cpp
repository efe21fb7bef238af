#include "shale/comm/parallel/tensor/exchange.h"

#include <memory>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/tensor/exchange_pieces.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/shape.h"

namespace shale::comm {
namespace {

// All rows of a layer's input, which backward gathers again. The gather starts with announce(), or
// when the first GEMM needs the rows. They are freed after the last GEMM that needs them.
class RowsAgain {
 public:
  RowsAgain(Exchange& exchange, const Tensor& slice)
      : exchange_(exchange), slice_("enter", slice) {}

  void announce() {
    if (!rows_.defined()) rows_ = exchange_.begin_gather(slice_.get());
  }
  Tensor get() {
    if (!rows_.defined()) {
      const Tensor rows = exchange_.gather(slice_.get());
      rows_ = Arrival([rows] { return rows; });
    }
    return rows_.get();
  }
  void release() {
    if (rows_.defined()) rows_.get();  // a pending gather still writes to this memory
    rows_ = Arrival();
  }

 private:
  Exchange& exchange_;
  SavedTensor slice_;
  Arrival rows_;
};

// Adds the rows of `all`, [n, count], as a binary tree. The result has the shape `shape`.
Tensor sum_of_rows(const Tensor& all, const Shape& shape) {
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < all.size(0); ++row) rows.push_back(run_of(all, row, all.size(0)));
  const Tensor sum = empty(all.context(), shape, DType::kF32);
  tree_sum(rows, sum);
  return sum;
}

// Adds `part` over all ranks in f32; autograd does not record this.
Tensor sum_of_ranks(Exchange& exchange, const Tensor& part) {
  const int64_t count = part.numel();
  const Tensor all = empty(part.context(), {exchange.ranks(), count}, DType::kF32);
  kernels::copy(all.exec(), {.x = part.alias({count}, {1}),
                             .y = all.alias({count}, {1}, exchange.rank() * count)});
  exchange.gather_parts(all);
  return sum_of_rows(all, part.shape());
}

// Records the op enter. `all`: all rows, gathered from x. Sets `again` if backward needs them.
Tensor entered(Exchange& exchange, const Tensor& x, const Tensor& all,
               std::shared_ptr<RowsAgain>& again) {
  Tensor rows = all.recorded_alias(all.shape(), all.strides());
  if (!needs_grad(x.context(), {x})) {
    record("enter", {x}, {&rows}, nullptr);
    return rows;
  }
  again = std::make_shared<RowsAgain>(exchange, x);
  set_recipe(rows, [again = again] { return again->get(); });
  record("enter", {x}, {&rows}, [&exchange, again = again](BackwardArgs& args) {
    again->release();
    return Grads{exchange.sum_slices(args.dy())};
  });
  return rows;
}

Tensor enter(Exchange& exchange, const Tensor& x, std::shared_ptr<RowsAgain>& again) {
  check_contiguous("enter", "x", x);
  return entered(exchange, x, exchange.ranks() > 1 ? exchange.gather(x) : x, again);
}

// Records the op leave. again: input rows from which `part` was computed; null: unknown. Backward
// gathers them after the gradient, while GEMMs that do not need them run. leaving: has already sent
// some pieces of `part`; null: nothing was sent.
Tensor leave(Exchange& exchange, const Tensor& part, const std::shared_ptr<RowsAgain>& again,
             LeavingRows* leaving = nullptr) {
  check_contiguous("leave", "a part", part);
  if (part.ndim() < 2 || part.size(exchange.row_dim(part.shape())) % exchange.ranks() != 0) {
    throw ShapeError(
        cat("leave: rows are ", part.shape(), " for ", exchange.ranks(),
            exchange.has_whole_samples()
                ? " ranks, expected [B, ...] with B a multiple of the number of ranks"
                : " ranks, expected [..., T, C] with T a multiple of the number of ranks"));
  }
  Tensor y = leaving != nullptr ? leaving->sum(part) : exchange.sum_slices(part);
  record("leave", {part}, {&y}, [&exchange, again](BackwardArgs& args) {
    const Tensor dy = exchange.ranks() > 1 ? exchange.gather(args.dy()) : args.dy();
    // If weight gradients are deferred, the rows are gathered only when these are computed.
    if (again != nullptr && exchange.ranks() > 1 && args.deferred() == nullptr) again->announce();
    return Grads{dy};
  });
  return y;
}

}  // namespace

Tensor enter(Exchange& exchange, const Tensor& x) {
  std::shared_ptr<RowsAgain> again;
  return enter(exchange, x, again);
}

Tensor leave(Exchange& exchange, const Tensor& part) {
  return leave(exchange, part, nullptr);
}

Tensor sum_over_ranks(Exchange& exchange, const Tensor& part) {
  check_contiguous("sum over ranks", "the part", part);
  Tensor sum = sum_of_ranks(exchange, part);
  record("sum over ranks", {part}, {&sum},
         [&exchange](BackwardArgs& args) { return Grads{sum_of_ranks(exchange, args.dy())}; });
  return sum;
}

Tensor sum_losses(Exchange& exchange, const Tensor& loss) {
  check_shape("sum of losses", "the loss", loss, {});
  Context& context = loss.context();
  const Tensor all = empty(context, {exchange.ranks()}, DType::kF32, MemoryTag::kComm);
  context.copy(all.alias({1}, {1}, exchange.rank()).data(), loss.data(), loss.bytes());
  exchange.gather_parts(all);
  Tensor total = sum_of_rows(all.alias({exchange.ranks(), 1}, {1, 1}), {});
  record("sum of losses", {loss}, {&total}, [](BackwardArgs& args) { return Grads{args.dy()}; });
  return total;
}

Tensor own_samples(const Exchange& exchange, const Tensor& whole) {
  const int64_t samples = whole.size(0), count = samples / exchange.ranks();
  if (samples % exchange.ranks() != 0) {
    throw ShapeError(cat("tensor: a micro-batch of ", samples, " samples over ", exchange.ranks(),
                         " ranks, expected a multiple of the number of ranks"));
  }
  return slice(whole, 0, exchange.rank() * count, (exchange.rank() + 1) * count);
}

Tensor across(Exchange& exchange, const Tensor& x, const Tensor& residual,
              const nn::Distribution::Body& body) {
  check_contiguous("enter", "x", x);
  EnteringRows entering(exchange, x);
  LeavingRows leaving(exchange, entering.rows().shape());
  std::shared_ptr<RowsAgain> again;
  const Tensor rows = entered(exchange, x, entering.rows(), again);
  const Tensor sum = leave(exchange, body(rows, leaving.residual()), again, &leaving);
  return residual.defined() ? add(residual, sum) : sum;
}

}  // namespace shale::comm
