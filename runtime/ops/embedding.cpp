#include "shale/runtime/ops/embedding.h"

#include "shale/kernels/embedding.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

// Defers the whole backward. A separate gradient, added to the table's gradient afterwards, would
// round differently, so the kernel must add to the table's gradient directly. Returns false if a
// table is not a leaf.
bool defer(BackwardArgs& args, const Tensor& ids, int64_t first_position, const TableRows& rows) {
  const Tensor table = args.leaf(0), positions = args.leaf(1);
  std::vector<Tensor> leaves;
  for (int input : {0, 1}) {
    if (!args.needs(input)) continue;
    if (!args.leaf(input).defined()) return false;
    leaves.push_back(args.leaf(input));
  }
  args.deferred()->add(leaves, [=, dy = args.dy()] {
    kernels::EmbeddingBwdArgs kernel{.ids = ids, .dy = dy};
    kernel.first_position = first_position;
    kernel.first_row = rows.first;
    kernel.whole_rows = rows.whole;
    const auto place = [&](const Tensor& leaf, View& to, bool& accumulate) {
      if (!leaf.defined()) return Tensor();
      if (const auto grad = claim_leaf_grad(leaf, DType::kBF16)) {
        to = grad->grad;
        accumulate = grad->accumulate;
        return Tensor();
      }
      const Tensor own = empty(leaf.context(), leaf.shape(), DType::kF32, MemoryTag::kGradient);
      to = own;
      return own;
    };
    const Tensor d_table = place(table, kernel.d_table, kernel.accumulate_table);
    const Tensor d_positions = place(positions, kernel.d_positions, kernel.accumulate_positions);
    kernels::embedding_bwd(dy.exec(), kernel);
    if (d_table.defined()) add_leaf_grad(table, d_table);
    if (d_positions.defined()) add_leaf_grad(positions, d_positions);
  });
  return true;
}

}  // namespace

Tensor embedding(const Tensor& ids, const Tensor& table, const Tensor& positions,
                 int64_t first_position, const TableRows& rows) {
  const char* op = "embedding";
  check_dtype(op, "ids", ids, DType::kI32);
  check_contiguous(op, "ids", ids);
  check_shape(op, "ids", ids, {ids.size(0), ids.size(-1)});
  check_contiguous(op, "table", table);
  if (positions.defined()) {
    check_shape(op, "positions", positions, {positions.size(0), table.size(1)});
    if (first_position < 0 || first_position + ids.size(1) > positions.size(0)) {
      throw ShapeError(cat(op, ": positions ", first_position, " to ", first_position + ids.size(1),
                           " do not fit into ", argument_text("the table", positions), " of ",
                           positions.size(0), " rows"));
    }
  }
  Tensor y = empty(table.context(), {ids.size(0), ids.size(1), table.size(1)}, table.dtype());
  kernels::embedding_fwd(y.exec(), {.ids = ids,
                                    .table = table,
                                    .positions = positions.defined() ? positions.view() : View{},
                                    .y = y,
                                    .first_position = first_position,
                                    .first_row = rows.first,
                                    .whole_rows = rows.whole});
  if (OpRecorder* to = recorder_of(y)) {
    to->add(op, {ids, table, positions}, {y},
            {{"first_position", first_position}, {"whole_rows", rows.whole}});
  }
  if (!needs_grad(y.context(), {table, positions})) return y;
  record(
      op, {table, positions}, {&y},
      [op, ids = SavedTensor(op, ids), table, positions, first_position, rows](BackwardArgs& args) {
        if (args.deferred() != nullptr && defer(args, ids.get(), first_position, rows)) {
          return Grads(2);
        }
        Grads grads(2);
        kernels::EmbeddingBwdArgs kernel{.ids = ids.get(), .dy = args.dy()};
        kernel.first_position = first_position;
        kernel.first_row = rows.first;
        kernel.whole_rows = rows.whole;
        emit_grad(args, {0, table}, grads, [&](const Tensor& to, bool accumulate) {
          kernel.d_table = to;
          kernel.accumulate_table = accumulate;
        });
        emit_grad(args, {1, positions}, grads, [&](const Tensor& to, bool accumulate) {
          kernel.d_positions = to;
          kernel.accumulate_positions = accumulate;
        });
        kernels::embedding_bwd(args.dy().exec(), kernel);
        return grads;
      });
  return y;
}

}  // namespace shale
