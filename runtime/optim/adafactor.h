#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/kernels/adafactor.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// The names are those of the paper below.
struct AdafactorOptions {
  float eps = 1e-30f;           // added to squared gradients
  float clip_rms = 1;           // of a parameter's update, at most
  double decay_exponent = 0.8;  // the newest gradient has weight t^-decay_exponent in the means
  float weight_decay = 0;       // decoupled; as AdamW's
};

// Adafactor (arXiv:1804.04235, algorithm 4) without momentum and with the schedule's learning rate:
// of a matrix it keeps a mean squared gradient per row and per column (all dimensions but the last
// are rows), of other parameters per element. Some bytes per thousand parameters.
//
// Its statistics are of whole parameters, so that ranks add what they find in their shards
// (ShardPeers; steps are collective then), in an order that depends on how shards are cut: results
// are the same only for the same number of ranks that shard. What tensor ranks of one parameter
// find (Parameter::peers) is kept apart and added rank by rank, whoever has them. Throws
// ConfigError for a shard with a fence (runtime/offload), for shards that are cut over different
// ranks or were clipped apart, and for a part of a parameter without peers that have the rest.
class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimShard> shards, const AdafactorOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // A whole parameter, of which ranks have parts.
  struct Whole {
    size_t first_part = 0;
    int64_t rows = 1, cols = 1, ranks = 1;
    bool factored = false;
    double used = 1;            // the share of the elements that is no padding
    bool cuts_columns = false;  // a tensor rank has some of the columns, else some of the rows
    int64_t means_offset = 0;   // rows, then columns, in means_
  };
  // Elements of a part that lie in a row in their matrix: the whole, or a tensor rank's columns of
  // it.
  struct Piece {
    int64_t offset = 0, count = 0;  // in the part
    kernels::MatrixRange matrix{};
  };
  // A parameter's part in a shard.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    size_t whole = 0;
    std::vector<Piece> pieces = {};
    Tensor v{};  // if not factored
  };
  void add_part(size_t shard, const OptimSpan& span);
  size_t whole_of(const Parameter& parameter);
  View row(const Tensor& means, const Part& part) const;
  View col(const Tensor& means, const Part& part) const;
  View square(const Part& part) const;
  bool counts(const Part& part) const;
  View grad(const Part& part, const Piece& piece) const;
  // One tensor rank's statistics of all that there are for each tensor rank.
  Tensor of_rank(const Tensor& all, const Part& part) const;
  void add_leaves();

  AdafactorOptions options_;
  const ShardPeers* peers_;
  std::vector<Part> parts_;
  std::vector<Whole> wholes_;
  std::map<std::string, size_t> numbers_;  // of wholes, by name
  int64_t ranks_ = 1;                      // the most that one has
  Tensor means_;                           // of all matrices
  Tensor newest_;  // [tensor ranks, means]: the same, of this step's gradient and one tensor rank
  Tensor
      squares_;  // [tensor ranks, wholes + 1]: sums of squares of updates; the last are for nobody
  Tensor newest_sum_, squares_sum_;  // over the tensor ranks
};

}  // namespace shale::optim
