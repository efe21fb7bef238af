#include "shale/runtime/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/muon.h"
#include "shale/kernels/optim.h"

namespace shale::optim {
namespace {

float scale_of(MuonScale scale, int64_t out, int64_t in) {
  const auto rows = static_cast<double>(out), cols = static_cast<double>(in);
  switch (scale) {
    case MuonScale::kMatchRmsAdamW: return float(0.2 * std::sqrt(std::max(rows, cols)));
    case MuonScale::kOriginal: return float(std::sqrt(std::max(1.0, rows / cols)));
    case MuonScale::kSpectral: break;
  }
  return float(std::sqrt(rows / cols));
}

// Queues a copy of a vector to another.
void copy(const Tensor& from, const Tensor& to) {
  if (from.numel() == 0) return;
  kernels::copy(to.exec(), {.x = from, .y = to});
}

}  // namespace

// ---- Who has what ----

Muon::Muon(std::vector<OptimShard> shards, const MuonOptions& options)
    : Optimizer(std::move(shards)), options_(options), peers_(peers_of("muon", this->shards())) {
  if (options_.adamw.moments != Moments::kF32) {
    throw ConfigError("muon: AdamW's moments are to be other than fp32, want fp32");
  }
  for (size_t i = 0; i < this->shards().size(); ++i) {
    const OptimShard& shard = this->shards()[i];
    if (shard.fence != nullptr) {
      throw ConfigError(cat("muon: ", shard.name,
                            " is to be stepped while forward goes on, want all on the device: "
                            "matrices come together before"));
    }
    for (const OptimSpan& span : shard.spans) add_part(i, span);
  }
  gather_ranges();
  for (size_t i = 0; i < parts_.size(); ++i) add_jobs(i);
  deal();
}

void Muon::add_part(size_t shard, const OptimSpan& span) {
  const Parameter& parameter = *span.parameter;
  if (peers_ == nullptr && span.count != parameter.numel()) {
    throw ConfigError(cat("muon: ", shards()[shard].name, " has ", span.count, " of the ",
                          parameter.numel(), " elements of ", parameter.full_name(),
                          ", want OptimShard::peers with the ranks that have the others"));
  }
  Part part{.shard = shard, .span = span};
  part.is_matrix =
      parameter.shape.ndim() == 2 && (options_.matrices == nullptr || options_.matrices(parameter));
  const auto state = [&](const char* name) {
    return add_state({.name = cat(name, ".", parameter.full_name()), .value = {}, .shard = shard},
                     span.count, DType::kF32);
  };
  part.m = state("m");
  if (part.is_matrix) {
    part.scale =
        scale_of(options_.scale, parameter.shape.at(0) / parameter.matrices, parameter.shape.at(1));
    part.offset = update_count_;
    update_count_ += span.count;
  } else {
    part.v = state("v");
  }
  parts_.push_back(std::move(part));
}

// Collective.
void Muon::gather_ranges() {
  std::vector<int64_t> mine;
  for (const Part& part : parts_) {
    mine.push_back(part.span.first);
    mine.push_back(part.span.count);
  }
  std::vector<int64_t> all = mine;
  if (peers_ != nullptr && !parts_.empty()) {
    Context& context = shards().front().grad.context();
    const auto count = static_cast<int64_t>(mine.size());
    all = to_host<int64_t>(peers_->gather(from_host<int64_t>(context, mine, {count})));
  }
  for (size_t rank = 0; rank < static_cast<size_t>(ranks()); ++rank) {
    ranges_.emplace_back();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int64_t* const range = all.data() + 2 * (rank * parts_.size() + i);
      ranges_.back().push_back({.first = range[0], .count = range[1]});
    }
  }
}

void Muon::add_jobs(size_t part) {
  if (!parts_[part].is_matrix) return;
  const Parameter& parameter = *parts_[part].span.parameter;
  const int64_t rows = parameter.shape.at(0) / parameter.matrices, cols = parameter.shape.at(1);
  for (int64_t i = 0; i < parameter.matrices; ++i) {
    jobs_.push_back({.part = part, .rows = rows, .cols = cols, .first = i * rows * cols});
  }
}

double Muon::Job::cost() const {
  const auto k = static_cast<double>(std::min(rows, cols));
  return k * k * (2 * static_cast<double>(std::max(rows, cols)) + k);
}

// To the rank that has the least to do yet, the largest first (longest processing time first). All
// ranks come to the same.
void Muon::deal() {
  std::stable_sort(jobs_.begin(), jobs_.end(),
                   [](const Job& a, const Job& b) { return a.cost() > b.cost(); });
  std::vector<double> load(static_cast<size_t>(ranks()));
  std::vector<size_t> count(load.size());
  for (Job& job : jobs_) {
    const auto owner =
        static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    job.owner = static_cast<int>(owner);
    load[owner] += job.cost();
    const size_t round = count[owner]++;
    if (round == rounds_.size()) rounds_.emplace_back(load.size());
    rounds_[round][owner] = &job;
  }
}

// The part of a job that a rank has, in elements of the parameter.
Muon::Range Muon::overlap(const Job& job, int rank) const {
  const Range& range = ranges_[static_cast<size_t>(rank)][job.part];
  const int64_t begin = std::max(job.first, range.first);
  const int64_t end = std::min(job.first + job.rows * job.cols, range.first + range.count);
  return {.first = begin, .count = std::max<int64_t>(0, end - begin)};
}

// This rank's part of a job's update.
Tensor Muon::slice_of(const Job& job) const {
  const Range mine = overlap(job, rank());
  const Part& part = parts_[job.part];
  const int64_t begin = mine.count > 0 ? mine.first - part.span.first : 0;
  return vector_slice(updates_, part.offset + begin, mine.count);
}

// ---- A step ----

void Muon::set_corrections(StepState& values, int64_t done) const {
  const auto t = static_cast<double>(done + 1);
  values.bias_correction1 = static_cast<float>(1 - std::pow(double(options_.adamw.beta1), t));
  values.bias_correction2 = static_cast<float>(1 - std::pow(double(options_.adamw.beta2), t));
}

void Muon::queue_momentum() {
  for (const Part& part : parts_) {
    if (!part.is_matrix || part.span.count == 0) continue;
    const Tensor& grad = shards()[part.shard].grad;
    kernels::muon_momentum(exec(part.shard),
                           {.grad = vector_slice(grad, part.span.offset, part.span.count),
                            .m = part.m,
                            .update = vector_slice(updates_, part.offset, part.span.count),
                            .beta = options_.momentum,
                            .nesterov = options_.nesterov});
  }
}

// x: the update of a whole matrix, as a vector; orthogonalized in place.
void Muon::orthogonalize_here(const Job& job, const Tensor& x) {
  const Tensor matrix = x.alias({job.rows, job.cols}, {job.cols, 1});
  const ScaledMatrix result = orthogonalize(matrix, options_.method, options_.eps);
  const int64_t count = job.rows * job.cols;
  // Updates travel as bf16, so that the factor is applied here, once for all ranks alike.
  kernels::axpby(x.exec(), {.a = result.value.alias({count}, {1}), .y = x, .alpha = result.factor});
}

// Sends this rank's parts of a round's matrices to their owners.
Muon::Trip Muon::send(const Round& round) {
  Trip trip;
  int64_t parts = 0, whole = 0;
  const Job* const own = round[static_cast<size_t>(rank())];
  for (int peer = 0; peer < ranks(); ++peer) {
    const Job* const theirs = round[static_cast<size_t>(peer)];
    trip.part_counts.push_back(theirs != nullptr ? overlap(*theirs, rank()).count : 0);
    trip.whole_counts.push_back(own != nullptr ? overlap(*own, peer).count : 0);
    parts += trip.part_counts.back();
    whole += trip.whole_counts.back();
  }
  Context& context = updates_.context();
  trip.mine = empty(context, {parts}, DType::kBF16, MemoryTag::kComm, "muon");
  trip.whole = empty(context, {whole}, DType::kBF16, MemoryTag::kComm, "muon");
  int64_t at = 0;
  for (int peer = 0; peer < ranks(); ++peer) {
    const int64_t count = trip.part_counts[static_cast<size_t>(peer)];
    if (count == 0) continue;
    copy(slice_of(*round[static_cast<size_t>(peer)]), vector_slice(trip.mine, at, count));
    at += count;
  }
  trip.wait = peers_->exchange(trip.mine, trip.part_counts, trip.whole, trip.whole_counts);
  return trip;
}

// Orthogonalizes this rank's matrix of a round, and sends the parts back. Shards are in rank order,
// so that what came is the matrix.
void Muon::compute(const Round& round, Trip& trip) {
  trip.wait();
  const Job* const own = round[static_cast<size_t>(rank())];
  if (own != nullptr) orthogonalize_here(*own, trip.whole);
  trip.wait = peers_->exchange(trip.whole, trip.whole_counts, trip.mine, trip.part_counts);
}

void Muon::receive(const Round& round, Trip& trip) {
  trip.wait();
  int64_t at = 0;
  for (int peer = 0; peer < ranks(); ++peer) {
    const int64_t count = trip.part_counts[static_cast<size_t>(peer)];
    if (count == 0) continue;
    copy(vector_slice(trip.mine, at, count), slice_of(*round[static_cast<size_t>(peer)]));
    at += count;
  }
}

void Muon::begin_step() {
  if (parts_.empty()) return;
  hold_values();  // of all shards alike
  Context& context = shards().front().grad.context();
  updates_ = empty(context, {update_count_}, DType::kBF16, MemoryTag::kOptimizer, "muon");
  queue_momentum();
  if (ranks() == 1) {
    for (const Job& job : jobs_) orthogonalize_here(job, slice_of(job));
    return;
  }
  // A round's parts travel while the round before it is computed, and its results while the one
  // after it is.
  std::vector<Trip> trips;
  for (size_t k = 0; k < rounds_.size(); ++k) {
    if (k == 0) trips.push_back(send(rounds_[0]));
    if (k + 1 < rounds_.size()) trips.push_back(send(rounds_[k + 1]));
    compute(rounds_[k], trips[k]);
    if (k > 0) receive(rounds_[k - 1], trips[k - 1]), trips[k - 1] = {};
  }
  if (!trips.empty()) receive(rounds_.back(), trips.back());
}

void Muon::update(size_t shard, const Tensor& compute) {
  const OptimShard& own = shards()[shard];
  for (const Part& part : parts_) {
    if (part.shard != shard || part.span.count == 0) continue;
    const auto piece = [&](const Tensor& vector) {
      return vector.defined() ? vector_slice(vector, part.span.offset, part.span.count).view()
                              : View{};
    };
    const float decay = decay_of(part.span, options_.weight_decay);
    if (part.is_matrix) {
      kernels::muon(exec(shard), {.master = piece(own.master),
                                  .update = vector_slice(updates_, part.offset, part.span.count),
                                  .param = piece(compute),
                                  .lr_factor = part.span.options.lr_factor,
                                  .scale = part.scale,
                                  .weight_decay = decay});
      continue;
    }
    kernels::adamw(exec(shard), {.master = piece(own.master),
                                 .grad = piece(own.grad),
                                 .m = part.m,
                                 .v = part.v,
                                 .param = piece(compute),
                                 .lr_factor = part.span.options.lr_factor,
                                 .beta1 = options_.adamw.beta1,
                                 .beta2 = options_.adamw.beta2,
                                 .eps = options_.adamw.eps,
                                 .weight_decay = decay});
  }
  if (shard + 1 == shards().size()) updates_ = {};  // shards are stepped in order
}

std::vector<StatePart> Muon::state_parts() const {
  std::vector<StatePart> all;
  for (const Part& part : parts_) {
    const Parameter* parameter = part.span.parameter;
    for (const auto& [name, values] : {std::pair{"m", part.m}, {"v", part.v}}) {
      if (!values.defined()) continue;
      all.push_back({.name = cat(parameter->full_name(), "/", name),
                     .parameter = parameter,
                     .shape = parameter->shape,
                     .first = part.span.first,
                     .values = values});
    }
  }
  return all;
}

}  // namespace shale::optim
