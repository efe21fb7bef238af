#include "shale/runtime/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <map>
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

// Number and size of the matrices of a whole parameter. They are consecutive in memory.
struct Matrices {
  int64_t count = 0, rows = 0, cols = 0;
};

Matrices matrices_of(const Parameter& parameter) {
  const Shape& shape = parameter.whole;
  const int64_t outer = shape.ndim() == 3 ? shape.at(0) : 1;
  return {.count = outer * parameter.matrices,
          .rows = shape.at(-2) / parameter.matrices,
          .cols = shape.at(-1)};
}

}  // namespace

// ---- Assignment of matrices to ranks ----

Muon::Muon(std::vector<OptimShard> shards, const MuonOptions& options)
    : Optimizer(std::move(shards)), options_(options), peers_(peers_of("muon", this->shards())) {
  if (options_.adamw.moments != Moments::kF32) {
    throw ConfigError("muon: adamw.moments must be fp32");
  }
  for (size_t i = 0; i < this->shards().size(); ++i) {
    for (const OptimSpan& span : this->shards()[i].spans) add_part(i, span);
  }
  gather_ranges();
  std::map<std::string, std::vector<size_t>> of_name;  // parameter name -> indices of its parts
  for (size_t i = 0; i < parts_.size(); ++i) {
    of_name[parts_[i].span.parameter->full_name()].push_back(i);
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::vector<size_t>& parts = of_name[parts_[i].span.parameter->full_name()];
    if (parts.front() == i) add_jobs(parts);
  }
  deal();
}

void Muon::add_part(size_t shard, const OptimSpan& span) {
  const Parameter& parameter = *span.parameter;
  const bool has_experts = parameter.sharding.is_of_experts && span.count == parameter.numel();
  if (!has_experts && lacks_parts(span, peers_)) {
    throw ConfigError(cat("muon: ", shards()[shard].name, " has ", span.count, " of the ",
                          parameter.numel(), " elements of ", parameter.full_name(),
                          "; set OptimShard::peers to the ranks that have its other elements"));
  }
  Part part{.shard = shard, .span = span};
  const int dims = parameter.shape.ndim();
  part.is_matrix =
      (dims == 2 || dims == 3) && (options_.matrices == nullptr || options_.matrices(parameter));
  const auto state = [&](const char* name) {
    return add_state({.name = cat(name, ".", parameter.full_name()), .value = {}, .shard = shard},
                     span.count, DType::kF32);
  };
  part.m = state("m");
  if (part.is_matrix) {
    const Matrices matrices = matrices_of(parameter);
    part.scale = scale_of(options_.scale, matrices.rows, matrices.cols);
  } else {
    part.v = state("v");
  }
  parts_.push_back(std::move(part));
}

// Gathers the ranges of all ranks. Collective.
void Muon::gather_ranges() {
  std::vector<int64_t> mine;
  for (const Part& part : parts_) {
    mine.push_back(part.span.first);
    mine.push_back(part.span.count);
    mine.push_back(part.span.parameter->sharding.rank);
  }
  std::vector<int64_t> all = mine;
  if (peers_ != nullptr && !parts_.empty()) {
    const auto count = static_cast<int64_t>(mine.size());
    all = to_host<int64_t>(peers_->gather(from_host<int64_t>(device(), mine, {count})));
  }
  for (size_t rank = 0; rank < static_cast<size_t>(ranks()); ++rank) {
    ranges_.emplace_back();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int64_t* const range = all.data() + 3 * (rank * parts_.size() + i);
      ranges_.back().push_back(
          {.first = range[0], .count = range[1], .tensor_rank = static_cast<int>(range[2])});
    }
  }
}

// True if this parameter is experts, and every rank holds all elements of its own experts. Then
// their matrices need not be exchanged.
bool Muon::has_own_experts(size_t part) const {
  const Parameter& parameter = *parts_[part].span.parameter;
  if (!parameter.sharding.is_of_experts) return false;
  return std::all_of(ranges_.begin(), ranges_.end(), [&](const std::vector<Range>& of_rank) {
    return of_rank[part].count == parameter.numel();
  });
}

void Muon::add_jobs(const std::vector<size_t>& parts) {
  if (!parts_[parts.front()].is_matrix) return;
  const Parameter& parameter = *parts_[parts.front()].span.parameter;
  const auto [count, rows, cols] = matrices_of(parameter);
  const bool is_own = has_own_experts(parts.front());
  const int64_t own = count / (is_own ? parameter.sharding.ranks : 1);
  const int64_t first = is_own ? own * parameter.sharding.rank : 0;
  for (int64_t i = first; i < first + own; ++i) {
    const Job job{.parts = parts,
                  .matrix = {.parameter = &parameter,
                             .first = i * rows * cols,
                             .rows = rows,
                             .cols = cols,
                             .owner = rank()}};
    (is_own ? own_jobs_ : jobs_).push_back(job);
  }
}

double Muon::Matrix::flops() const {
  const auto k = static_cast<double>(std::min(rows, cols));
  return k * k * (2 * static_cast<double>(std::max(rows, cols)) + k);
}

// Assigns matrices to ranks, the largest matrix first, each to the rank with the least work so far
// (longest processing time first). Matrices of one shape follow each other. All ranks compute the
// same assignment.
void Muon::deal() {
  for (std::vector<Job>* const jobs : {&jobs_, &own_jobs_}) {
    std::stable_sort(jobs->begin(), jobs->end(), [](const Job& a, const Job& b) {
      const double more = a.matrix.flops() - b.matrix.flops();
      return more != 0 ? more > 0 : a.matrix.rows > b.matrix.rows;
    });
  }
  for (const Job& job : own_jobs_) {
    if (own_batches_.empty() || !joins(own_batches_.back(), job)) own_batches_.emplace_back();
    own_batches_.back().push_back(&job);
  }
  std::vector<double> load(static_cast<size_t>(ranks()));
  for (Job& job : jobs_) {
    const auto owner =
        static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    job.matrix.owner = static_cast<int>(owner);
    load[owner] += job.matrix.flops();
    add_to_rounds(job);
  }
}

// True if the matrix of `job` can be processed in one batch with those of `batch`.
bool Muon::joins(const Batch& batch, const Job& job) const {
  constexpr int64_t kMost = int64_t{1} << 20;  // maximum number of elements of a batch
  const Matrix& first = batch.front()->matrix;
  return wants_batches(device(), job.matrix.rows, job.matrix.cols) &&
         static_cast<int64_t>(batch.size() + 1) * job.numel() <= kMost &&
         first.rows == job.matrix.rows && first.cols == job.matrix.cols;
}

// Adds a job to the last batch of its owner if it fits, else as a new batch in the next round.
void Muon::add_to_rounds(const Job& job) {
  const auto owner = static_cast<size_t>(job.matrix.owner);
  size_t next = 0;  // first round in which the owner has no batch
  while (next < rounds_.size() && !rounds_[next][owner].empty()) ++next;
  if (next > 0 && joins(rounds_[next - 1][owner], job)) {
    rounds_[next - 1][owner].push_back(&job);
    return;
  }
  if (next == rounds_.size()) rounds_.emplace_back(static_cast<size_t>(ranks()));
  rounds_[next][owner].push_back(&job);
}

std::vector<Muon::Matrix> Muon::matrices() const {
  std::vector<Matrix> all;
  for (const std::vector<Job>* const jobs : {&jobs_, &own_jobs_}) {
    for (const Job& job : *jobs) all.push_back(job.matrix);
  }
  return all;
}

// Returns the pieces of a job's matrix that a rank holds, in the order of that rank's memory.
// Contiguous runs are cut at the beginning and end of the matrix.
std::vector<Muon::Piece> Muon::pieces_of(const Job& job, int rank) const {
  const int64_t begin = job.matrix.first, end = begin + job.numel();
  std::vector<Piece> pieces;
  for (const size_t part : job.parts) {
    const Parameter& parameter = *parts_[part].span.parameter;
    const Range& range = ranges_[static_cast<size_t>(rank)][part];
    Sharding sharding = parameter.sharding;
    sharding.rank = range.tensor_rank;
    for_each_rows(parameter.whole, sharding, range.first, range.count, [&](PartRows rows) {
      if (rows.rows > 1) {  // the rank holds some columns; a matrix has whole rows of it
        const int64_t base = rows.in_whole, step = rows.stride;
        const int64_t from = base >= begin ? 0 : (begin - base + step - 1) / step;
        const int64_t to = std::min(rows.rows, base >= end ? 0 : (end - base + step - 1) / step);
        if (from >= to) return;
        rows.in_part += from * rows.run, rows.in_whole += from * step, rows.rows = to - from;
      } else {
        const int64_t from = std::max(rows.in_whole, begin);
        const int64_t to = std::min(rows.in_whole + rows.run, end);
        if (from >= to) return;
        rows.in_part += from - rows.in_whole, rows.in_whole = from, rows.run = to - from;
      }
      rows.in_whole -= begin;
      pieces.push_back({.part = part, .rows = rows});
    });
  }
  return pieces;
}

int64_t Muon::count_of(const Job& job, int rank) const {
  int64_t count = 0;
  for (const Piece& piece : pieces_of(job, rank)) count += piece.numel();
  return count;
}

// True if the pieces of all ranks, concatenated in rank order, form the matrix.
bool Muon::is_in_order(const Job& job) const {
  return job.matrix.parameter->sharding.share == Share::kWhole;
}

// Returns the update of a piece that this rank holds.
Tensor Muon::slice_of(const Piece& piece) const {
  const Part& part = parts_[piece.part];
  return vector_slice(part.update, piece.rows.in_part - part.span.first, piece.numel());
}

// ---- A step ----

// Returns the context of the parameters. Their step may run in another one.
Context& Muon::device() const {
  return parts_.front().span.parameter->value.context();
}

// Queues a copy of a vector. Both may be on the device, or one in host memory.
void Muon::copy(const Tensor& from, const Tensor& to) const {
  if (from.numel() == 0) return;
  if (&from.context() == &to.context()) return kernels::copy(to.exec(), {.x = from, .y = to});
  device().copy(to.data(), from.data(), to.bytes());
}

// Copies a piece to its position in the matrix; if `back`, from that position to the piece.
void Muon::arrange(const Tensor& pieces, const Piece& piece, const Tensor& matrix,
                   bool back) const {
  const PartRows& rows = piece.rows;
  if (rows.rows == 1) {
    const Tensor place = vector_slice(matrix, rows.in_whole, rows.run);
    return back ? copy(place, pieces) : copy(pieces, place);
  }
  const Tensor dense = pieces.alias({rows.rows, rows.run}, {rows.run, 1});
  const Tensor place = matrix.alias({rows.rows, rows.run}, {rows.stride, 1}, rows.in_whole);
  kernels::copy(matrix.exec(), {.x = back ? place : dense, .y = back ? dense : place});
}

void Muon::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.adamw.beta1, done + 1);
  values.bias_correction2 = correction(options_.adamw.beta2, done + 1);
}

void Muon::queue_momentum() {
  for (Part& part : parts_) {
    if (!part.is_matrix) continue;
    const Tensor& grad = shards()[part.shard].grad;
    part.update =
        empty(grad.context(), {part.span.count}, DType::kBF16, MemoryTag::kOptimizer, "muon");
    if (part.span.count == 0) continue;
    kernels::muon_momentum(exec(part.shard),
                           {.grad = vector_slice(grad, part.span.offset, part.span.count),
                            .m = part.m,
                            .update = part.update,
                            .beta = options_.momentum,
                            .nesterov = options_.nesterov});
  }
}

// Orthogonalizes the updates of a batch's matrices in place. x: the concatenated matrices, as a
// vector.
void Muon::orthogonalize_batch(const Batch& batch, const Tensor& x) const {
  const int64_t rows = batch.front()->matrix.rows, cols = batch.front()->matrix.cols;
  const auto count = static_cast<int64_t>(batch.size());
  const Tensor matrices = wants_batches(device(), rows, cols)
                              ? x.alias({count, rows, cols}, {rows * cols, cols, 1})
                              : x.alias({rows, cols}, {cols, 1});
  const ScaledMatrix result = orthogonalize(matrices, options_.method, options_.eps);
  // Only the owner of a matrix scales it, before the result is rounded to bf16 and sent. So all
  // ranks get the same values.
  kernels::axpby(x.exec(),
                 {.a = result.value.alias({x.numel()}, {1}), .y = x, .alpha = result.factor});
}

// Orthogonalizes matrices that this rank holds entirely.
void Muon::orthogonalize_alone(const Batch& batch) {
  const Job& first = *batch.front();
  const std::vector<Piece> pieces = pieces_of(first, rank());
  if (batch.size() == 1 && pieces.size() == 1 && pieces.front().rows.rows == 1) {
    const Tensor update = slice_of(pieces.front());
    if (&update.context() == &device()) return orthogonalize_batch(batch, update);
  }
  const auto count = static_cast<int64_t>(batch.size());
  const int64_t numel = first.numel();
  const Tensor x = empty(device(), {count * numel}, DType::kBF16, MemoryTag::kOptimizer, "muon");
  const auto move = [&](bool back) {
    for (int64_t i = 0; i < count; ++i) {
      const Tensor matrix = vector_slice(x, i * numel, numel);
      for (const Piece& piece : pieces_of(*batch[static_cast<size_t>(i)], rank())) {
        arrange(slice_of(piece), piece, matrix, back);
      }
    }
  };
  move(/*back=*/false);
  orthogonalize_batch(batch, x);
  move(/*back=*/true);
}

// Visits this rank's parts of a round's matrices. Calls visit(part, section of the send buffer that
// belongs to it).
void Muon::for_each_part(const Round& round, const Trip& trip,
                         const std::function<void(const Tensor&, const Tensor&)>& visit) const {
  int64_t at = 0;
  for (const Batch& theirs : round) {
    for (const Job* const job : theirs) {
      for (const Piece& piece : pieces_of(*job, rank())) {
        visit(slice_of(piece), vector_slice(trip.mine, at, piece.numel()));
        at += piece.numel();
      }
    }
  }
}

// Sends this rank's parts of a round's matrices to their owners.
Muon::Trip Muon::send(const Round& round) {
  Trip trip;
  int64_t parts = 0, whole = 0;
  const Batch& own = round[static_cast<size_t>(rank())];
  const auto count_in = [this](const Batch& batch, int peer) {
    int64_t count = 0;
    for (const Job* const job : batch) count += count_of(*job, peer);
    return count;
  };
  for (int peer = 0; peer < ranks(); ++peer) {
    trip.part_counts.push_back(count_in(round[static_cast<size_t>(peer)], rank()));
    trip.whole_counts.push_back(count_in(own, peer));
    parts += trip.part_counts.back();
    whole += trip.whole_counts.back();
  }
  trip.mine = empty(device(), {parts}, DType::kBF16, MemoryTag::kComm, "muon");
  trip.whole = empty(device(), {whole}, DType::kBF16, MemoryTag::kComm, "muon");
  for_each_part(round, trip,
                [this](const Tensor& part, const Tensor& place) { copy(part, place); });
  trip.wait = peers_->exchange(trip.mine, trip.part_counts, trip.whole, trip.whole_counts);
  return trip;
}

// Orthogonalizes this rank's matrices of a round, and sends each rank its parts of the results.
// Received parts are sorted by rank. For a single matrix without tensor parallelism they already
// form the matrix. Otherwise they are first copied to their positions in the matrices.
void Muon::compute(const Round& round, Trip& trip) {
  trip.wait();
  const Batch& own = round[static_cast<size_t>(rank())];
  if (own.size() == 1 && is_in_order(*own.front())) {
    orthogonalize_batch(own, trip.whole);
  } else if (!own.empty()) {
    const int64_t numel = own.front()->numel();
    const Tensor x =
        empty(device(), {std::ssize(own) * numel}, DType::kBF16, MemoryTag::kOptimizer, "muon");
    const auto sort = [&](bool back) {
      int64_t at = 0;
      for (int peer = 0; peer < ranks(); ++peer) {
        for (size_t i = 0; i < own.size(); ++i) {
          const Tensor matrix = vector_slice(x, static_cast<int64_t>(i) * numel, numel);
          for (const Piece& piece : pieces_of(*own[i], peer)) {
            arrange(vector_slice(trip.whole, at, piece.numel()), piece, matrix, back);
            at += piece.numel();
          }
        }
      }
    };
    sort(/*back=*/false);
    orthogonalize_batch(own, x);
    sort(/*back=*/true);
  }
  trip.wait = peers_->exchange(trip.whole, trip.whole_counts, trip.mine, trip.part_counts);
}

void Muon::receive(const Round& round, Trip& trip) {
  trip.wait();
  for_each_part(round, trip,
                [this](const Tensor& part, const Tensor& place) { copy(place, part); });
}

void Muon::begin_step() {
  if (parts_.empty()) return;
  hold_values();  // throws if the shards were clipped separately
  queue_momentum();
  for (const Batch& batch : own_batches_) orthogonalize_alone(batch);
  if (ranks() == 1) {
    for (const Round& round : rounds_) orthogonalize_alone(round.front());
  } else {
    orthogonalize_by_rounds();
  }
  // The CPU will read updates that are in host memory, so this waits for them.
  const bool any_on_host = std::any_of(parts_.begin(), parts_.end(), [this](const Part& part) {
    return part.is_matrix && &part.update.context() != &device();
  });
  if (any_on_host) device().synchronize();
}

void Muon::orthogonalize_by_rounds() {
  // Transfers overlap with computation: while a round is computed, the parts of the next round and
  // the results of the previous round are sent.
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
  for (Part& part : parts_) {
    if (part.shard != shard || part.span.count == 0) continue;
    const auto piece = [&](const Tensor& vector) {
      return vector.defined() ? vector_slice(vector, part.span.offset, part.span.count).view()
                              : View{};
    };
    const float decay = decay_of(part.span, options_.weight_decay);
    if (part.is_matrix) {
      kernels::muon(exec(shard), {.master = piece(own.master),
                                  .update = std::exchange(part.update, {}),
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
}

std::vector<StatePart> Muon::own_state_parts() const {
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
