#include "shale/comm/parallel/context/cut_sequence.h"

#include <algorithm>
#include <vector>

#include "shale/base/error.h"

namespace shale::comm {

int32_t* SequenceParts::copy_shard(std::span<const int32_t> tokens, int shard, int32_t padding,
                                   int32_t* to) const {
  const int64_t T = std::ssize(tokens), S = chunk_tokens(T);
  for (const int half : {0, 1}) {
    const int64_t begin = std::min(chunk(shard, half) * S, T), end = std::min(begin + S, T);
    to = std::copy(tokens.begin() + begin, tokens.begin() + end, to);
    to = std::fill_n(to, S - (end - begin), padding);
  }
  return to;
}

CutSequence::CutSequence(std::unique_ptr<Exchange> exchange, int64_t tokens, ContextKind kind,
                         int slices)
    : exchange_(std::move(exchange)), tokens_(tokens), kind_(kind), slices_(slices) {}

void CutSequence::set_groups(std::unique_ptr<Exchange> heads, std::unique_ptr<Exchange> ring) {
  heads_ = std::move(heads);
  ring_ = std::make_unique<CutSequence>(std::move(ring), tokens_, ContextKind::kRing, slices_);
  ring_->group_ = heads_->ranks();
}

SequenceParts CutSequence::parts() const {
  return {.shards = exchange_->ranks() * group_,
          .first = exchange_->rank() * group_,
          .count = group_,
          .slices = slices_};
}

const Tensor& CutSequence::positions(Context& context, int64_t sequences) {
  Tensor& positions = positions_[{&context, sequences}];
  if (positions.defined()) return positions;
  const SequenceParts at = parts();
  const int64_t S = chunk_tokens();
  std::vector<int32_t> values;
  for (int64_t b = 0; b < sequences; ++b) {
    for (const int half : {0, 1}) {
      for (int64_t t = 0; t < S; ++t) {
        const int64_t position = at.chunk(at.first, half) * S + t;
        values.push_back(static_cast<int32_t>(std::min(position, tokens_ - 1)));
      }
    }
  }
  return positions = from_host<int32_t>(context, values, {sequences, 2 * S});
}

namespace {

// Positions of x in the whole activation, if x is this rank's slice of the rows of whole sequences.
std::vector<DropoutPlace> slice_of(const Exchange& layers, const Tensor& x) {
  return {{.first = layers.rank() * x.numel(),
           .sample_elements = x.numel() * layers.ranks() / x.size(0),
           .elements = x.numel()}};
}

// Positions of x in the whole activation, if x has shards of sequences. If `layers` is not null,
// each of its ranks has a slice of the rows of the shards.
std::vector<DropoutPlace> chunks_of(const CutSequence& sequence, const Exchange* layers,
                                    const Tensor& x) {
  const int rank = layers != nullptr ? layers->rank() : 0;
  const SequenceParts parts = sequence.parts();
  const int64_t S = sequence.chunk_tokens(), C = x.size(-1), sample = S * parts.chunks() * C;
  const int64_t rows = x.numel() / C;
  std::vector<DropoutPlace> places;
  for (int64_t row = rank * rows; row < (rank + 1) * rows;) {
    const int64_t run = row / S;  // number of the chunk; two in a row belong to one sequence
    const int64_t end = std::min((run + 1) * S, (rank + 1) * rows);
    const int64_t token = parts.chunk(parts.first, static_cast<int>(run % 2)) * S + row % S;
    places.push_back({.first = run / 2 * sample + token * C,
                      .sample_elements = sample,
                      .elements = (end - row) * C});
    row = end;
  }
  return places;
}

}  // namespace

std::vector<DropoutPlace> places_of(const Exchange* layers, const CutSequence* sequence,
                                    const Tensor& x) {
  if (sequence != nullptr) return chunks_of(*sequence, layers, x);
  return layers != nullptr ? slice_of(*layers, x) : std::vector<DropoutPlace>();
}

}  // namespace shale::comm
