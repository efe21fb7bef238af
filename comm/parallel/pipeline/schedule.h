#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::comm {

// Order in which the ranks of a pipeline process the micro-batches of a step.
//
//   gpipe        all forwards, then all backwards (arXiv:1811.06965)
//   1f1b         forward and backward in turn, so that a rank holds few activations
//                (arXiv:2006.09503, section 3.2; 2104.04473, section 2.2.1)
//   interleaved  1f1b with several model chunks per rank (arXiv:2104.04473, section 2.2.2)
//   zb-h1        1f1b with separate weight gradients, which fill the times in which a rank would
//                idle (arXiv:2401.10241, section 3.1)
//   zbv          zb-h1 with two chunks per rank, the second in reverse order, so that the first and
//                the last stage are on one rank (arXiv:2401.10241, section 6)
enum class ScheduleKind : uint8_t { kGpipe, k1F1B, kInterleaved, kZbH1, kZbV };
std::string_view schedule_name(ScheduleKind kind);  // "zb-h1"

enum class ActionKind : uint8_t {
  kForward,
  kBackward,         // gradients of inputs and weights
  kBackwardInput,    // gradients of inputs only
  kBackwardWeights,  // gradients of weights, after kBackwardInput
};

// One action of a rank: on one micro-batch, in one of the rank's model chunks.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;
  int micro = 0;
  friend bool operator==(const Action&, const Action&) = default;
};
std::string describe(const Action& action);  // "forward 7 of chunk 1"

// Assignment of the model's stages, 0 to ranks * chunks - 1, to ranks.
struct StagePlacement {
  int ranks = 1;
  int chunks = 1;        // model chunks per rank
  bool returns = false;  // true: two chunks; the second visits ranks in reverse order

  int stages() const { return ranks * chunks; }
  int stage_of(int rank, int chunk) const {
    return returns && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank;
  }
  int rank_of(int stage) const {
    return returns && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks;
  }
  int chunk_of(int stage) const { return stage / ranks; }
};

// Lists of actions, one for each rank of a pipeline; a rank runs its list in order.
struct Schedule {
  StagePlacement placement;
  int micros = 1;                          // number of micro-batches per step
  std::vector<std::vector<Action>> lists;  // actions of each rank

  bool splits_backward() const;  // true if it uses kBackwardInput and kBackwardWeights
};

// Makes a schedule. zbv needs two chunks; interleaved takes any number of chunks, and a multiple of
// `ranks` micro-batches; other kinds need one chunk. Throws ConfigError, naming valid numbers, for
// other arguments.
Schedule make_schedule(ScheduleKind kind, int ranks, int chunks, int micros);

// Checks that each rank's list has every chunk and micro-batch once forward and once backward, with
// each forward before its backward. The micro-batches of a chunk and kind must be in ascending
// order: gradients are added in this order, so they have the same bits in every schedule. Throws
// ConfigError, naming rank and action, if a check fails.
void check_schedule(const Schedule& schedule);

}  // namespace shale::comm
