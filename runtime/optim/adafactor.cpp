#include "shale/runtime/optim/adafactor.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::optim {

Adafactor::Adafactor(std::vector<OptimShard> shards, const AdafactorOptions& options)
    : Optimizer(std::move(shards)),
      options_(options),
      peers_(peers_of("adafactor", this->shards())) {
  int64_t means = 0;
  for (size_t i = 0; i < this->shards().size(); ++i) {
    const OptimShard& shard = this->shards()[i];
    if (shard.fence != nullptr) {
      throw ConfigError(cat("adafactor: ", shard.name,
                            " is to be stepped while forward goes on, want all on the device: "
                            "statistics over ranks come before"));
    }
    // Parts that are empty here have statistics too, which other ranks fill.
    for (const OptimSpan& span : shard.spans) {
      if (peers_ == nullptr && span.count != span.parameter->numel()) {
        throw ConfigError(cat("adafactor: ", shard.name, " has ", span.count, " of the ",
                              span.parameter->numel(), " elements of ", span.parameter->full_name(),
                              ", want OptimShard::peers with the ranks that have the others"));
      }
      const Shape& shape = span.parameter->shape;
      const int64_t cols = shape.ndim() > 0 ? shape.at(-1) : 1;
      Part part{.shard = i, .span = span};
      part.matrix = {.rows = shape.numel() / cols, .cols = cols, .first = span.first};
      part.factored = part.matrix.rows > 1 && cols > 1;
      part.means_offset = means;
      if (part.factored) {
        means += part.matrix.rows + cols;
      } else {
        part.v = add_state({.name = "v." + span.parameter->full_name(), .value = {}, .shard = i},
                           span.count, DType::kF32);
      }
      parts_.push_back(std::move(part));
    }
  }
  if (parts_.empty()) return;
  means_ = add_state({.name = "means", .value = {}}, means, DType::kF32);
  Context& context = means_.context();
  newest_ = empty(context, {means}, DType::kF32, MemoryTag::kOptimizer, "adafactor");
  squares_ =
      empty(context, {int64_t(parts_.size())}, DType::kF32, MemoryTag::kOptimizer, "adafactor");
}

void Adafactor::set_corrections(StepState& values, int64_t done) const {
  const auto t = static_cast<double>(done + 1);
  values.bias_correction2 = static_cast<float>(std::pow(t, -options_.decay_exponent));
}

View Adafactor::row(const Tensor& means, const Part& part) const {
  if (!part.factored) return {};
  return vector_slice(means, part.means_offset, part.matrix.rows).view();
}

View Adafactor::col(const Tensor& means, const Part& part) const {
  if (!part.factored) return {};
  return vector_slice(means, part.means_offset + part.matrix.rows, part.matrix.cols).view();
}

View Adafactor::square(size_t part) const {
  return squares_.alias({}, {}, static_cast<int64_t>(part)).view();
}

View Adafactor::grad(const Part& part) const {
  return vector_slice(shards()[part.shard].grad, part.span.offset, part.span.count).view();
}

void Adafactor::begin_step() {
  if (parts_.empty()) return;
  hold_values();  // of all shards alike
  const Exec exec = this->exec(0);
  kernels::fill(exec, {.y = newest_, .value = 0});
  kernels::fill(exec, {.y = squares_, .value = 0});
  for (const Part& part : parts_) {
    if (!part.factored || part.span.count == 0) continue;
    kernels::adafactor_means(exec, {.grad = grad(part),
                                    .row_mean = row(newest_, part),
                                    .col_mean = col(newest_, part),
                                    .part = part.matrix,
                                    .eps = options_.eps});
  }
  if (peers_ != nullptr) peers_->sum(newest_);
  kernels::adafactor_average(exec, {.newest = newest_, .mean = means_});
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.span.count == 0) continue;
    kernels::adafactor_squares(exec, {.grad = grad(part),
                                      .row = row(means_, part),
                                      .col = col(means_, part),
                                      .v = part.factored ? View{} : part.v.view(),
                                      .sum = square(i),
                                      .part = part.matrix,
                                      .eps = options_.eps});
  }
  if (peers_ != nullptr) peers_->sum(squares_);
}

void Adafactor::update(size_t shard, const Tensor& compute) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.shard != shard || part.span.count == 0) continue;
    const auto piece = [&](const Tensor& vector) {
      return vector.defined() ? vector_slice(vector, part.span.offset, part.span.count).view()
                              : View{};
    };
    kernels::adafactor(exec(shard), {.master = piece(shards()[shard].master),
                                     .grad = grad(part),
                                     .row = row(means_, part),
                                     .col = col(means_, part),
                                     .v = part.factored ? View{} : part.v.view(),
                                     .square_sum = square(i),
                                     .param = piece(compute),
                                     .part = part.matrix,
                                     .lr_factor = part.span.options.lr_factor,
                                     .clip_rms = options_.clip_rms,
                                     .weight_decay = decay_of(part.span, options_.weight_decay)});
  }
}

std::vector<StatePart> Adafactor::own_state_parts() const {
  std::vector<StatePart> all;
  for (const Part& part : parts_) {
    const Parameter* parameter = part.span.parameter;
    if (!part.factored) {
      all.push_back({.name = parameter->full_name() + "/v",
                     .parameter = parameter,
                     .shape = parameter->shape,
                     .first = part.span.first,
                     .values = part.v});
      continue;
    }
    const int64_t rows = part.matrix.rows, cols = part.matrix.cols;
    const auto add_means = [&](const char* name, int64_t begin, int64_t count) {
      all.push_back({.name = cat(parameter->full_name(), "/", name),
                     .parameter = parameter,
                     .shape = {count},
                     .values = vector_slice(means_, begin, count),
                     .is_whole = true});
    };
    add_means("v_row", part.means_offset, rows);
    add_means("v_col", part.means_offset + rows, cols);
  }
  return all;
}

}  // namespace shale::optim
