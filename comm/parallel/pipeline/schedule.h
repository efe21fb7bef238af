#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::comm {

// In which order the ranks of a pipeline work on the micro-batches of a step.
//
//   gpipe        all forwards, then all backwards (arXiv:1811.06965)
//   1f1b         a forward and a backward in turn, so that a rank holds few activations
//                (arXiv:2006.09503, section 3.2; 2104.04473, section 2.2.1)
//   interleaved  1f1b with several chunks of the model on a rank (arXiv:2104.04473, section 2.2.2)
//   zb-h1        1f1b whose backwards leave the gradients of weights for when a rank would idle
//                (arXiv:2401.10241, section 3.1)
//   zbv          the same with two chunks on a rank, the second in reverse order, so that the first
//                and the last stage are on one rank (arXiv:2401.10241, section 6)
enum class ScheduleKind : uint8_t { kGpipe, k1F1B, kInterleaved, kZbH1, kZbV };
std::string_view schedule_name(ScheduleKind kind);  // "zb-h1"

enum class ActionKind : uint8_t {
  kForward,
  kBackward,         // of inputs and weights
  kBackwardInput,    // of inputs alone
  kBackwardWeights,  // of weights, which kBackwardInput has left
};

// What a rank does with one micro-batch and one of its chunks of the model.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;
  int micro = 0;
  friend bool operator==(const Action&, const Action&) = default;
};
std::string describe(const Action& action);  // "forward 7 of chunk 1"

// Where the stages of a pipeline are: stages 0 to ranks * chunks - 1 of the model, in order.
struct StagePlacement {
  int ranks = 1;
  int chunks = 1;         // of a rank
  bool returns = false;   // of two chunks, the second in reverse order of ranks

  int stages() const { return ranks * chunks; }
  int stage_of(int rank, int chunk) const {
    return returns && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank;
  }
  int rank_of(int stage) const {
    return returns && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks;
  }
  int chunk_of(int stage) const { return stage / ranks; }
};

// Lists of actions, one for each rank of a pipeline, which does them one after another.
struct Schedule {
  StagePlacement placement;
  int micros = 1;                          // micro-batches of a step
  std::vector<std::vector<Action>> lists;  // by rank

  bool splits_backward() const;  // into kBackwardInput and kBackwardWeights
};

// Throws ConfigError, naming what fits, for numbers that a kind does not take: zbv has two chunks,
// interleaved as many as asked for, with micro-batches in groups of `ranks`, the others one.
Schedule make_schedule(ScheduleKind kind, int ranks, int chunks, int micros);

// Throws ConfigError, naming rank and action, unless each rank's list has every chunk and
// micro-batch of the schedule once forward and once backward, a forward before its backward, the
// micro-batches of a chunk and kind in ascending order. Ascending order is why gradients, which are
// added as they come, have the same bits in every schedule.
void check_schedule(const Schedule& schedule);

}  // namespace shale::comm
