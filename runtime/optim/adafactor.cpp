#include "shale/runtime/optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/reduce_dims.h"

namespace shale::optim {
namespace {

// True if each tensor-parallel shard of a parameter has its own statistics. False for experts,
// because there are too many of them.
bool is_apart(const Sharding& sharding) {
  return sharding.share == Share::kShard && !sharding.is_of_experts;
}

}  // namespace

Adafactor::Adafactor(std::vector<OptimShard> shards, const AdafactorOptions& options)
    : Optimizer(std::move(shards)),
      options_(options),
      peers_(all_peers_of("adafactor", this->shards())) {
  for (size_t i = 0; i < this->shards().size(); ++i) {
    const OptimShard& shard = this->shards()[i];
    if (shard.fence != nullptr) {
      throw ConfigError(cat("adafactor: ", shard.name,
                            " cannot be updated during forward, because statistics over ranks are "
                            "needed first; do not offload"));
    }
    // A span without elements on this rank gets statistics, too, because other ranks contribute to
    // them.
    for (const OptimSpan& span : shard.spans) add_part(i, span);
  }
  if (parts_.empty()) return;
  int64_t means = 0;
  for (Whole& whole : wholes_) {
    ranks_ = std::max(ranks_, whole.ranks);
    whole.means_offset = means;
    if (whole.factored) means += whole.rows + whole.cols;
  }
  means_ = add_state({.name = "means", .value = {}}, means, DType::kF32);
  const auto make = [&](int64_t count) {
    return empty(means_.context(), {count}, DType::kF32, MemoryTag::kOptimizer, "adafactor");
  };
  const auto squares = static_cast<int64_t>(wholes_.size()) + 1;
  newest_sum_ = newest_ = make(ranks_ * means);
  squares_sum_ = squares_ = make(ranks_ * squares);
  if (ranks_ == 1) return;
  newest_sum_ = make(means);
  squares_sum_ = make(squares);
}

size_t Adafactor::whole_of(const Parameter& parameter) {
  const auto [number, is_new] = numbers_.try_emplace(parameter.full_name(), wholes_.size());
  if (!is_new) return number->second;
  const Shape& shape = parameter.whole;
  const Sharding& sharding = parameter.sharding;
  const bool is_cut = is_apart(sharding);
  Whole whole{.first_part = parts_.size(), .cols = shape.ndim() > 0 ? shape.at(-1) : 1};
  whole.rows = whole.cols > 0 ? shape.numel() / whole.cols : 0;
  whole.ranks = is_cut ? sharding.ranks : 1;
  if (parameter.padding_rows > 0) {
    whole.used = 1 - static_cast<double>(parameter.padding_rows) / static_cast<double>(shape[0]);
  }
  whole.factored = whole.rows > 1 && whole.cols > 1;
  whole.cuts_columns = whole.factored && is_cut && sharding.dim == shape.ndim() - 1;
  wholes_.push_back(whole);
  return number->second;
}

void Adafactor::add_part(size_t shard, const OptimSpan& span) {
  const Parameter& parameter = *span.parameter;
  if (lacks_parts(span, peers_)) {
    throw ConfigError(cat("adafactor: ", shards()[shard].name, " has ", span.count, " of the ",
                          parameter.whole.numel(), " elements of ", parameter.full_name(),
                          "; set OptimShard::peers to the ranks that have its other elements"));
  }
  Part part{.shard = shard, .span = span, .whole = whole_of(parameter)};
  const Whole& whole = wholes_[part.whole];
  const auto add = [&](int64_t offset, int64_t count, const kernels::MatrixRange& matrix) {
    if (count > 0) part.pieces.push_back({.offset = offset, .count = count, .matrix = matrix});
  };
  if (!whole.factored) {
    add(0, span.count, {.rows = 1, .cols = parameter.whole.numel(), .first = span.first});
    part.v = add_state({.name = "v." + parameter.full_name(), .value = {}, .shard = shard},
                       span.count, DType::kF32);
  } else if (whole.cuts_columns) {
    add(0, span.count, {.rows = whole.rows, .cols = whole.cols / whole.ranks, .first = span.first});
  } else {
    for_each_rows(
        parameter.whole, parameter.sharding, span.first, span.count, [&](const PartRows& rows) {
          for (int64_t i = 0; i < rows.rows; ++i) {
            add(rows.in_part + i * rows.run - span.first, rows.run,
                {.rows = whole.rows, .cols = whole.cols, .first = rows.in_whole + i * rows.stride});
          }
        });
  }
  parts_.push_back(std::move(part));
}

void Adafactor::set_corrections(StepState& values, int64_t done) const {
  const auto t = static_cast<double>(done + 1);
  values.bias_correction2 = static_cast<float>(std::pow(t, -options_.decay_exponent));
}

Tensor Adafactor::of_rank(const Tensor& all, const Part& part) const {
  const Sharding& sharding = part.span.parameter->sharding;
  const int64_t count = all.numel() / ranks_;
  const int64_t rank = is_apart(sharding) ? sharding.rank : 0;
  return vector_slice(all, rank * count, count);
}

View Adafactor::row(const Tensor& means, const Part& part) const {
  const Whole& whole = wholes_[part.whole];
  if (!whole.factored) return {};
  return vector_slice(means, whole.means_offset, whole.rows).view();
}

View Adafactor::col(const Tensor& means, const Part& part) const {
  const Whole& whole = wholes_[part.whole];
  if (!whole.factored) return {};
  const int64_t count = whole.cuts_columns ? whole.cols / whole.ranks : whole.cols;
  const int64_t first = whole.cuts_columns ? part.span.parameter->sharding.rank * count : 0;
  return vector_slice(means, whole.means_offset + whole.rows + first, count).view();
}

// True if this rank contributes its part to sums over ranks. If several ranks hold the same values,
// it is true on one of them.
bool Adafactor::counts(const Part& part) const {
  return part.span.parameter->sharding.counts() && !shards()[part.shard].repeats;
}

// Returns the element of squares_ to which the squares of this part are added.
View Adafactor::square(const Part& part) const {
  const bool counts = this->counts(part);
  const auto place = static_cast<int64_t>(counts ? part.whole : wholes_.size());
  return of_rank(squares_, part).alias({}, {}, place).view();
}

View Adafactor::grad(const Part& part, const Piece& piece) const {
  return vector_slice(shards()[part.shard].grad, part.span.offset + piece.offset, piece.count)
      .view();
}

// Sums the statistics of the tensor-parallel ranks, in rank order. If these ranks shard the columns
// of a matrix, its row means are averaged instead.
void Adafactor::add_leaves() {
  if (ranks_ == 1) return;
  const Exec exec = this->exec(0);
  const auto add = [&](const Tensor& all, const Tensor& sum, int64_t first, int64_t count,
                       float scale) {
    if (count == 0) return;
    const Tensor x = all.alias({ranks_, count}, {sum.numel(), 1}, first);
    const Tensor y = vector_slice(sum, first, count).alias({1, count}, {count, 1});
    kernels::reduce_dims(exec, {.x = x.view(), .y = y.view(), .scale = scale});
  };
  add(newest_, newest_sum_, 0, newest_sum_.numel(), 1);
  for (const Whole& whole : wholes_) {
    if (!whole.cuts_columns) continue;
    add(newest_, newest_sum_, whole.means_offset, whole.rows, 1 / static_cast<float>(whole.ranks));
  }
}

void Adafactor::begin_step() {
  if (parts_.empty()) return;
  hold_values();  // throws if the shards were clipped separately
  const Exec exec = this->exec(0);
  kernels::fill(exec, {.y = newest_, .value = 0});
  kernels::fill(exec, {.y = squares_, .value = 0});
  for (const Part& part : parts_) {
    if (!wholes_[part.whole].factored || !counts(part)) continue;
    for (const Piece& piece : part.pieces) {
      kernels::adafactor_means(exec, {.grad = grad(part, piece),
                                      .row_mean = row(of_rank(newest_, part), part),
                                      .col_mean = col(of_rank(newest_, part), part),
                                      .part = piece.matrix,
                                      .eps = options_.eps});
    }
  }
  if (peers_ != nullptr) peers_->sum(newest_);
  add_leaves();
  kernels::adafactor_average(exec, {.newest = newest_sum_, .mean = means_});
  for (const Part& part : parts_) {
    for (const Piece& piece : part.pieces) {
      kernels::adafactor_squares(exec, {.grad = grad(part, piece),
                                        .row = row(means_, part),
                                        .col = col(means_, part),
                                        .v = part.v.defined() ? part.v.view() : View{},
                                        .sum = square(part),
                                        .part = piece.matrix,
                                        .eps = options_.eps});
    }
  }
  if (peers_ != nullptr) peers_->sum(squares_);
  if (ranks_ == 1) return;
  const int64_t count = squares_sum_.numel();
  kernels::reduce_dims(exec, {.x = squares_.alias({ranks_, count}, {count, 1}).view(),
                              .y = squares_sum_.alias({1, count}, {count, 1}).view()});
}

void Adafactor::update(size_t shard, const Tensor& compute) {
  for (const Part& part : parts_) {
    if (part.shard != shard) continue;
    const Whole& whole = wholes_[part.whole];
    // The kernel divides the sum of squares by the number of elements of one tensor-parallel shard.
    // It should divide by the number of elements of the whole parameter without padding. The limit
    // clip_rms is scaled to correct this.
    const double more = whole.used * static_cast<double>(whole.cuts_columns ? whole.ranks : 1);
    const float clip = options_.clip_rms * static_cast<float>(std::sqrt(more));
    for (const Piece& piece : part.pieces) {
      const auto slice = [&](const Tensor& vector) {
        return vector.defined()
                   ? vector_slice(vector, part.span.offset + piece.offset, piece.count).view()
                   : View{};
      };
      kernels::adafactor(
          exec(shard),
          {.master = slice(shards()[shard].master),
           .grad = grad(part, piece),
           .row = row(means_, part),
           .col = col(means_, part),
           .v = part.v.defined() ? part.v.view() : View{},
           .square_sum = squares_sum_.alias({}, {}, static_cast<int64_t>(part.whole)).view(),
           .param = slice(compute),
           .part = piece.matrix,
           .lr_factor = part.span.options.lr_factor,
           .clip_rms = clip,
           .weight_decay = decay_of(part.span, options_.weight_decay)});
    }
  }
}

std::vector<StatePart> Adafactor::own_state_parts() const {
  std::vector<StatePart> all;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const Whole& whole = wholes_[part.whole];
    const Parameter* parameter = part.span.parameter;
    if (!whole.factored) {
      all.push_back({.name = parameter->full_name() + "/v",
                     .parameter = parameter,
                     .shape = parameter->shape,
                     .first = part.span.first,
                     .values = part.v});
      continue;
    }
    if (whole.first_part != i) continue;
    const auto add_means = [&](const char* name, int64_t begin, int64_t count) {
      all.push_back({.name = cat(parameter->full_name(), "/", name),
                     .parameter = parameter,
                     .shape = {count},
                     .values = vector_slice(means_, begin, count),
                     .is_whole = true,
                     .of_whole = true});
    };
    add_means("v_row", whole.means_offset, whole.rows);
    add_means("v_col", whole.means_offset + whole.rows, whole.cols);
  }
  return all;
}

}  // namespace shale::optim
