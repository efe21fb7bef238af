#include "shale/runtime/nn/cut_sequence.h"

#include <algorithm>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"

namespace shale::nn {

CutSequence::CutSequence(std::unique_ptr<Exchange> exchange, int64_t tokens, ContextKind kind,
                         int slices)
    : exchange_(std::move(exchange)), tokens_(tokens), kind_(kind), slices_(slices) {}

void CutSequence::set_groups(std::unique_ptr<Exchange> heads, std::unique_ptr<Exchange> ring) {
  heads_ = std::move(heads);
  ring_ = std::make_unique<CutSequence>(std::move(ring), tokens_, ContextKind::kRing, slices_);
}

SequenceParts CutSequence::parts() const {
  return {.leaves = exchange_->leaves(),
          .first = exchange_->first_leaf(),
          .count = exchange_->own_leaves(),
          .slices = slices_};
}

const Tensor& CutSequence::positions(Context& context, int64_t sequences) {
  Tensor& positions = positions_[{&context, sequences}];
  if (positions.defined()) return positions;
  const SequenceParts at = parts();
  const int64_t S = chunk_tokens();
  std::vector<int32_t> values;
  for (int leaf = at.first; leaf < at.first + at.count; ++leaf) {
    for (int64_t b = 0; b < sequences; ++b) {
      for (const int half : {0, 1}) {
        for (int64_t t = 0; t < S; ++t) {
          const int64_t position = at.chunk(leaf, half) * S + t;
          values.push_back(static_cast<int32_t>(std::min(position, tokens_ - 1)));
        }
      }
    }
  }
  return positions = from_host<int32_t>(context, values, {at.count * sequences, 2 * S});
}

Tensor CutSequence::sum(const std::vector<Tensor>& losses) {
  return sum_losses(*exchange_, losses);
}

namespace {

// Equal parts of the first dimension.
Tensor part_of(const Tensor& x, int64_t part, int64_t parts) {
  Shape shape = x.shape();
  shape[0] /= parts;
  return x.alias(shape, x.strides(), part * shape[0] * x.strides()[0]);
}

Tensor joined(const std::vector<Tensor>& parts, Context& context) {
  const auto count = static_cast<int64_t>(parts.size());
  const auto some =
      std::find_if(parts.begin(), parts.end(), [](const Tensor& part) { return part.defined(); });
  Shape shape = some->shape();
  shape[0] *= count;
  Tensor all = empty(context, shape, some->dtype());
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& part = parts[static_cast<size_t>(i)];
    const Tensor to = part_of(all, i, count);
    if (part.defined()) {
      kernels::copy(all.exec(), {.x = part, .y = to});
    } else {
      kernels::fill(all.exec(), {.y = to, .value = 0});
    }
  }
  return all;
}

Tensor join_parts(const std::vector<Tensor>& parts) {
  Tensor all = joined(parts, parts.front().context());
  record("rows of parts", parts, {&all}, [count = parts.size()](BackwardArgs& args) {
    Grads grads;
    for (size_t i = 0; i < count; ++i) {
      grads.push_back(part_of(args.dy(), static_cast<int64_t>(i), static_cast<int64_t>(count)));
    }
    return grads;
  });
  return all;
}

}  // namespace

std::vector<Tensor> split_parts(const CutSequence* sequence, const Tensor& x) {
  const int64_t count = sequence != nullptr ? sequence->parts().count : 1;
  if (count == 1) return {x};
  if (!x.defined()) return std::vector<Tensor>(static_cast<size_t>(count));
  check_contiguous("parts of rows", "x", x);
  std::vector<Tensor> parts;
  std::vector<Tensor*> outputs;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor part = part_of(x, i, count);
    parts.push_back(x.recorded_alias(part.shape(), part.strides(), i * part.numel()));
  }
  for (Tensor& part : parts) outputs.push_back(&part);
  record("parts of rows", std::vector{x}, outputs, [count](BackwardArgs& args) {
    std::vector<Tensor> grads;
    for (int i = 0; i < count; ++i) grads.push_back(args.dy(i));
    const auto some =
        std::find_if(grads.begin(), grads.end(), [](const Tensor& grad) { return grad.defined(); });
    return Grads{joined(grads, some->context())};
  });
  return parts;
}

Tensor over_parts(const CutSequence* sequence, const Tensor& x, const Tensor& residual,
                  const PartBody& body) {
  if (sequence == nullptr || sequence->parts().count == 1) return body(x, residual, 0);
  const std::vector<Tensor> rows = split_parts(sequence, x), rest = split_parts(sequence, residual);
  std::vector<Tensor> results;
  for (size_t i = 0; i < rows.size(); ++i) results.push_back(body(rows[i], rest[i], i));
  return join_parts(results);
}

namespace {

// Of slices of layers' rows alone.
std::vector<DropoutPlace> slice_of(const Exchange& layers, const Tensor& x) {
  return {{.first = layers.rank() * x.numel(),
           .sample_elements = x.numel() * layers.ranks() / x.size(0),
           .elements = x.numel()}};
}

// Of each leaf's rows, sequence after sequence, the ranks of `layers` have equal slices.
std::vector<DropoutPlace> chunks_of(const CutSequence& sequence, const Exchange* layers,
                                    const Tensor& x) {
  const int rank = layers != nullptr ? layers->rank() : 0;
  const SequenceParts parts = sequence.parts();
  const int64_t S = sequence.chunk_tokens(), C = x.size(-1), sample = S * parts.chunks() * C;
  const int64_t rows = x.numel() / C / parts.count;
  std::vector<DropoutPlace> places;
  for (int leaf = parts.first; leaf < parts.first + parts.count; ++leaf) {
    for (int64_t row = rank * rows; row < (rank + 1) * rows;) {
      const int64_t run = row / S;  // both chunks of a sequence, then those of the next
      const int64_t end = std::min((run + 1) * S, (rank + 1) * rows);
      const int64_t token = parts.chunk(leaf, static_cast<int>(run % 2)) * S + row % S;
      places.push_back({.first = run / 2 * sample + token * C,
                        .sample_elements = sample,
                        .elements = (end - row) * C});
      row = end;
    }
  }
  return places;
}

}  // namespace

Tensor dropout(const Module& module, const Tensor& x, float p, uint32_t site,
               const Tensor& residual) {
  const Exchange* const layers = module.exchange();
  std::vector<DropoutPlace> places;  // empty: whole samples
  if (module.sequence() != nullptr) {
    places = chunks_of(*module.sequence(), layers, x);
  } else if (layers != nullptr) {
    places = slice_of(*layers, x);
  }
  return shale::dropout(x, p, site, residual, places);
}

}  // namespace shale::nn
