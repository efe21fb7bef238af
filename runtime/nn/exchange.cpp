#include "shale/runtime/nn/exchange.h"

#include <memory>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/exchange_pieces.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/shape.h"

namespace shale::nn {
namespace {

// All rows for backward: gathered when they are announced, or when the first product asks, and let
// go when the last is done.
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
    if (rows_.defined()) rows_.get();  // others may still write to it
    rows_ = Arrival();
  }

 private:
  Exchange& exchange_;
  SavedTensor slice_;
  Arrival rows_;
};

Tensor zeros_like(const Tensor& x) {
  Tensor y = empty_like(x);
  kernels::fill(y.exec(), {.y = y, .value = 0});
  return y;
}

// Not recorded.
Tensor sum_of_leaves(Exchange& exchange, const std::vector<Tensor>& parts) {
  const Shape& shape = parts.at(0).shape();
  const int64_t count = parts[0].numel();
  const Tensor all = empty(parts[0].context(), {exchange.leaves(), count}, DType::kF32);
  std::vector<const void*> inputs;
  for (int64_t leaf = 0; leaf < exchange.leaves(); ++leaf) {
    const Tensor of_leaf = all.alias({count}, {1}, leaf * count);
    const int64_t own = leaf - exchange.first_leaf();
    if (own >= 0 && own < exchange.own_leaves()) {
      kernels::copy(all.exec(),
                    {.x = parts[static_cast<size_t>(own)].alias({count}, {1}), .y = of_leaf});
    }
    inputs.push_back(of_leaf.data());
  }
  exchange.gather_leaves(all);
  Tensor sum = empty(all.context(), shape, DType::kF32);
  void* const output = sum.data();
  kernels::tree_sum(sum.exec(),
                    {.inputs = inputs, .outputs = std::span(&output, 1), .count = count});
  return sum;
}

// rows: all, of the slices x. `again` gets what backward needs of them, and stays null where there
// is none.
std::vector<Tensor> entered(Exchange& exchange, const Tensor& x, const Tensor& rows,
                            std::shared_ptr<RowsAgain>& again) {
  std::vector<Tensor> leaves;
  std::vector<Tensor*> outputs;
  for (int i = 0; i < exchange.own_leaves(); ++i) {
    leaves.push_back(rows.recorded_alias(rows.shape(), rows.strides()));
  }
  for (Tensor& leaf : leaves) outputs.push_back(&leaf);
  if (!needs_grad(x.context(), {x})) {
    record("enter", std::vector{x}, outputs, nullptr);
    return leaves;
  }
  again = std::make_shared<RowsAgain>(exchange, x);
  for (Tensor& leaf : leaves) {
    set_recipe(leaf, [again = again] { return again->get(); });
  }
  record("enter", std::vector{x}, outputs, [&exchange, again = again](BackwardArgs& args) {
    again->release();
    std::vector<Tensor> parts;
    Tensor like;
    for (int i = 0; i < exchange.own_leaves(); ++i) {
      parts.push_back(args.dy(i));
      if (args.dy(i).defined()) like = args.dy(i);
    }
    for (Tensor& part : parts) {
      if (!part.defined()) part = zeros_like(like);
    }
    return Grads{exchange.sum_slices(parts)};
  });
  return leaves;
}

std::vector<Tensor> enter(Exchange& exchange, const Tensor& x, std::shared_ptr<RowsAgain>& again) {
  check_contiguous("enter", "x", x);
  return entered(exchange, x, exchange.ranks() > 1 ? exchange.gather(x) : x, again);
}

// again: of the rows of which the parts were made; null: unknown. They are gathered behind the
// gradient, while its products are computed that do not want them. leaving: what may know of the
// parts already; null: nothing does.
Tensor leave(Exchange& exchange, const std::vector<Tensor>& parts,
             const std::shared_ptr<RowsAgain>& again, LeavingRows* leaving = nullptr) {
  for (const Tensor& part : parts) check_contiguous("leave", "a part", part);
  const Tensor& first = parts.at(0);
  if (first.ndim() < 2 || first.size(exchange.row_dim(first.shape())) % exchange.ranks() != 0) {
    throw ShapeError(cat("leave: rows are ", first.shape(), " for ", exchange.ranks(),
                         exchange.has_whole_samples()
                             ? " ranks, want [B, ...] with B a multiple of them"
                             : " ranks, want [..., T, C] with T a multiple of them"));
  }
  Tensor y = leaving != nullptr ? leaving->sum(parts) : exchange.sum_slices(parts);
  record("leave", parts, {&y}, [&exchange, again, count = parts.size()](BackwardArgs& args) {
    const Tensor dy = exchange.ranks() > 1 ? exchange.gather(args.dy()) : args.dy();
    // Gradients of weights that are left for later want the rows then.
    if (again != nullptr && exchange.ranks() > 1 && args.deferred() == nullptr) again->announce();
    return Grads(count, dy);
  });
  return y;
}

}  // namespace

std::vector<Tensor> enter(Exchange& exchange, const Tensor& x) {
  std::shared_ptr<RowsAgain> again;
  return enter(exchange, x, again);
}

Tensor leave(Exchange& exchange, const std::vector<Tensor>& parts) {
  return leave(exchange, parts, nullptr);
}

std::vector<Tensor> sum_over_leaves(Exchange& exchange, const std::vector<Tensor>& parts) {
  for (const Tensor& part : parts) check_contiguous("sum_over_leaves", "a part", part);
  const Tensor sum = sum_of_leaves(exchange, parts);
  std::vector<Tensor> sums;
  std::vector<Tensor*> outputs;
  for (size_t i = 0; i < parts.size(); ++i) {
    sums.push_back(sum.recorded_alias(sum.shape(), sum.strides()));
  }
  for (Tensor& one : sums) outputs.push_back(&one);
  record("sum_over_leaves", parts, outputs, [&exchange, sum](BackwardArgs& args) {
    std::vector<Tensor> grads;
    for (int i = 0; i < exchange.own_leaves(); ++i) {
      grads.push_back(args.dy(i).defined() ? args.dy(i) : zeros_like(sum));
    }
    return Grads(grads.size(), sum_of_leaves(exchange, grads));
  });
  return sums;
}

Tensor sum_losses(Exchange& exchange, const std::vector<Tensor>& losses) {
  const int64_t leaves = exchange.leaves();
  Context& context = losses.at(0).context();
  const Tensor all = empty(context, {leaves}, DType::kF32, MemoryTag::kComm);
  for (size_t i = 0; i < losses.size(); ++i) {
    check_shape("sum of leaves", "a loss", losses[i], {});
    const Tensor to = all.alias({1}, {1}, exchange.first_leaf() + static_cast<int64_t>(i));
    context.copy(to.data(), losses[i].data(), losses[i].bytes());
  }
  exchange.gather_leaves(all);
  Tensor total = empty(context, {}, DType::kF32);
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < leaves; ++i) inputs.push_back(all.alias({1}, {1}, i).data());
  void* const output = total.data();
  kernels::tree_sum(context.exec(),
                    {.inputs = inputs, .outputs = std::span(&output, 1), .count = 1});
  record("sum of leaves", losses, {&total},
         [count = losses.size()](BackwardArgs& args) { return Grads(count, args.dy()); });
  return total;
}

std::vector<Parameter*> whole_parameters(const Module& module) {
  std::vector<Parameter*> parameters = module.parameters();
  std::erase_if(parameters, [](const Parameter* parameter) {
    return parameter->partition.share != LeafShare::kWhole && parameter->leaves.empty();
  });
  return parameters;
}

Tensor own_samples(const Exchange* exchange, const Tensor& whole) {
  if (exchange == nullptr) return whole;
  const int64_t samples = whole.size(0), count = samples / exchange->ranks();
  if (samples % exchange->leaves() != 0) {
    throw ShapeError(cat("tensor: a micro-batch of ", samples, " samples over ",
                         exchange->leaves(), " leaves, want a multiple of them"));
  }
  return slice(whole, 0, exchange->rank() * count, (exchange->rank() + 1) * count);
}

std::vector<Tensor> for_each_leaf(const Exchange* exchange, const std::vector<Tensor>& inputs,
                                  const SamplesBody& body) {
  const int64_t leaves = exchange != nullptr ? exchange->own_leaves() : 1;
  if (leaves == 1) return {body(inputs, 0)};
  std::vector<std::vector<Tensor>> of_leaf(static_cast<size_t>(leaves));
  for (const Tensor& input : inputs) {
    const std::vector<int64_t> sizes(of_leaf.size(), input.size(0) / leaves);
    const std::vector<Tensor> parts = split(input, sizes, 0);
    for (size_t leaf = 0; leaf < parts.size(); ++leaf) of_leaf[leaf].push_back(parts[leaf]);
  }
  std::vector<Tensor> results;
  for (size_t leaf = 0; leaf < of_leaf.size(); ++leaf) {
    results.push_back(body(of_leaf[leaf], leaf));
  }
  return results;
}

Tensor over_samples(const Exchange* exchange, const std::vector<Tensor>& inputs,
                    const SamplesBody& body) {
  const std::vector<Tensor> results = for_each_leaf(exchange, inputs, body);
  return results.size() == 1 ? results.front() : concat(results, 0);
}

Tensor over_leaves(Exchange* exchange, const Tensor& x, const Tensor& residual,
                   const LeafBody& body) {
  return over_all_leaves(exchange, x, residual,
                         [&](const std::vector<Tensor>& rows, const Tensor& rest) {
                           std::vector<Tensor> parts;
                           for (size_t leaf = 0; leaf < rows.size(); ++leaf) {
                             parts.push_back(body(rows[leaf], leaf, rest));
                           }
                           return parts;
                         });
}

Tensor over_all_leaves(Exchange* exchange, const Tensor& x, const Tensor& residual,
                       const LeavesBody& body) {
  if (exchange == nullptr) return body({x}, residual).front();
  std::shared_ptr<RowsAgain> again;
  const std::vector<Tensor> rows = enter(*exchange, x, again);
  const Tensor sum = leave(*exchange, body(rows, {}), again);
  return residual.defined() ? add(residual, sum) : sum;
}

Tensor over_leaves_by_pieces(Exchange* exchange, const Tensor& x, const Tensor& residual,
                             const PiecedBody& body) {
  return over_all_leaves_by_pieces(
      exchange, x, residual,
      [&](const std::vector<Tensor>& rows, const Tensor& rest, const OpPieces& pieces) {
        std::vector<Tensor> parts;
        for (size_t leaf = 0; leaf < rows.size(); ++leaf) {
          parts.push_back(body(rows[leaf], leaf, rest, pieces));
        }
        return parts;
      });
}

Tensor over_all_leaves_by_pieces(Exchange* exchange, const Tensor& x, const Tensor& residual,
                                 const PiecedLeavesBody& body) {
  if (exchange == nullptr) return body({x}, residual, {}).front();
  check_contiguous("enter", "x", x);
  EnteringRows entering(*exchange, x);
  LeavingRows leaving(*exchange, entering.rows().shape());
  std::shared_ptr<RowsAgain> again;
  const std::vector<Tensor> rows = entered(*exchange, x, entering.rows(), again);
  const std::vector<Tensor> parts = body(rows, {}, {.in = &entering, .out = &leaving});
  const Tensor sum = leave(*exchange, parts, again, &leaving);
  return residual.defined() ? add(residual, sum) : sum;
}

}  // namespace shale::nn
