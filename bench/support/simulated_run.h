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

// What a job of so many ranks trains, here one rank at a time: a GPT-2 of blocks large enough that
// each of 4,096 ranks has a part of every one.
struct SimulatedJob {
  int ranks = 1024;
  int stage = 3;
  int64_t layers = 4;
  int64_t width = 512;
};

// What a part of a run costs one rank.
struct SimulatedCost {
  comm::SimulatedCounts traffic;
  int64_t opens = 0;   // of files of the checkpoint
  int64_t read = 0;    // elements that it asked a stored model for
  double seconds = 0;  // on this machine, in which the rank waits for nobody
  LockTotals locks;    // of the thread that calls
};

// One rank of the job: the code above collectives is that of every run.
class SimulatedRank {
 public:
  SimulatedRank(const SimulatedJob& job, int rank);
  ~SimulatedRank();

  SimulatedCost step();  // with what ranks tell each other at its end
  // `folder`: a run's checkpoints. A rank other than 0 writes its file, which is removed again.
  SimulatedCost save(const std::string& folder);
  // Reads a checkpoint: ".../step_00000001".
  SimulatedCost resume(const std::string& checkpoint);
  // All weights, to rank 0's disk or to another program.
  SimulatedCost export_weights();
  // Reads a stored model.
  SimulatedCost load_weights();

  // Makes the file of this rank in a new checkpoint. Returns its record, for add_shard.
  std::string write_file(const std::string& folder);

  // Elements that its buffers of parameters have when they are gathered, beside those of the model.
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

// A checkpoint, and what rank 0 did for it.
struct SimulatedCheckpoint {
  std::string path;
  int64_t record_bytes = 0;  // that it received
  int64_t manifest_bytes = 0;
  int64_t manifest_values = 0;  // of JSON
  double join_s = 0;            // from records to the manifest's text
};

// A checkpoint of the job as its ranks would write it, committed.
SimulatedCheckpoint write_checkpoint(const SimulatedJob& job, const std::string& checkpoints);

// Opens of the files of a folder, from here on; those of one file that follow each other count
// once.
class OpenCount {
 public:
  explicit OpenCount(const std::string& folder);  // throws DiskError where the system cannot tell
  ~OpenCount();
  OpenCount(const OpenCount&) = delete;
  OpenCount& operator=(const OpenCount&) = delete;
  int64_t take();  // since the last call

 private:
  int fd_;
};

}  // namespace shale::bench
