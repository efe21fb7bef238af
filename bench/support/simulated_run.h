#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shale/bench/support/lock_count.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/groups/group_simulated.h"
#include "shale/models/language/family.h"
#include "shale/models/training/step.h"
#include "shale/models/training/step_exchange.h"

namespace shale::bench {

// A simulated job of `ranks` ranks, of which one runs at a time. The model is a GPT-2. Its blocks
// are so large that even each of 4,096 ranks has a shard of every block.
struct SimulatedJob {
  int ranks = 1024;
  int stage = 3;
  int64_t layers = 4;
  int64_t width = 512;
};

// Cost of a part of a run for one rank.
struct SimulatedCost {
  comm::SimulatedCounts traffic;
  int64_t opens = 0;   // opens of checkpoint files
  int64_t read = 0;    // elements read from a stored model
  double seconds = 0;  // time on this machine, without waits for other ranks
  LockTotals locks;    // mutexes that the calling thread locked
};

// One rank of the simulated job. The code above the collectives is that of real runs.
class SimulatedRank {
 public:
  SimulatedRank(const SimulatedJob& job, int rank);
  ~SimulatedRank();

  SimulatedCost step();  // runs a step and the exchange at its end
  // Saves a checkpoint to `folder`. A rank other than 0 writes its file and removes it again.
  SimulatedCost save(const std::string& folder);
  // Resumes from a checkpoint such as ".../step_00000001".
  SimulatedCost resume(const std::string& checkpoint);
  // Gathers all weights, as rank 0 of a real run does to save or export them.
  SimulatedCost export_weights();
  // Reads the weights from a stored model.
  SimulatedCost load_weights();

  // Writes this rank's file of a new checkpoint. Returns the rank's record for add_shard().
  std::string write_file(const std::string& folder);

  // gathered_elements(): number of elements in the gathered parameter buffers. model_elements():
  // number of elements of the model.
  int64_t gathered_elements() const;
  int64_t model_elements() const;

 private:
  template <typename Body>
  SimulatedCost cost_of(const Body& body);

  SimulatedJob job_;
  Context context_;
  comm::SimulatedGroup group_;
  std::unique_ptr<models::LanguageModel> model_;
  std::unique_ptr<models::TrainStep> step_;
  models::StepExchange exchange_;
  int64_t steps_ = 0;
};

// A checkpoint, and the work that rank 0 did for it.
struct SimulatedCheckpoint {
  std::string path;
  int64_t record_bytes = 0;  // bytes of records that rank 0 received
  int64_t manifest_bytes = 0;
  int64_t manifest_values = 0;  // number of JSON values
  double join_s = 0;  // seconds that rank 0 took to make the manifest's text from the records
};

// Writes a committed checkpoint of the job, as its ranks would.
SimulatedCheckpoint write_checkpoint(const SimulatedJob& job, const std::string& checkpoints);

// Counts how often files in a folder are opened. Consecutive opens of the same file count once.
class OpenCount {
 public:
  explicit OpenCount(const std::string& folder);  // throws DiskError if not supported
  ~OpenCount();
  OpenCount(const OpenCount&) = delete;
  OpenCount& operator=(const OpenCount&) = delete;
  int64_t take();  // returns the count since the last call

 private:
  int fd_;
};

}  // namespace shale::bench
