#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"
#include "shale/comm/parallel/data/reductions.h"
#include "shale/comm/parallel/data/unit_order.h"

namespace shale::comm {

// Synchronises gradients over the backwards of a step. Decides which model and chunk a backward
// belongs to, when units are reduced, and whether all ranks end with the same gradients.
class GradientSync {
 public:
  // All arguments must outlive this object.
  GradientSync(ShardingContext& shared, UnitGathers& gathers);

  void add_unit(FlatUnit& unit);
  // Sets all units, in the order in which forward probably reaches them.
  void set_order(const std::vector<FlatUnit*>& order);

  // See DataParallel.
  void begin_backward(bool last, int chunk);
  void set_no_sync(bool no_sync);
  void finish_gradients();
  std::vector<std::string> unused_parameters() const;
  void for_each_flag(const std::function<void(bool&)>& visit);
  // Throws ConfigError if the chunk has gradients of this rank that were not reduced.
  void check_reduced(size_t chunk) const;
  void check_all_reduced() const;

  // Called when a backward of the context begins or ends, when it reaches the model, and when it
  // leaves a unit's module for the last time.
  void backward_begins();
  void backward_reaches();
  void backward_ends();
  void after_last_backward(FlatUnit& unit);

 private:
  // The units that one backward reaches, and the state of their backwards since the last step.
  struct Chunk {
    std::vector<FlatUnit*> units;
    std::vector<FlatUnit*> order;  // order in which gradients are reduced
    bool reduced = false;
    bool has_local = false;  // has gradients that were not reduced
    int64_t in_tree = 0;     // number of backwards of the current loss, for a reproducible tree
  };
  Chunk& chunk() { return chunks_[chunk_]; }
  const Chunk& chunk() const { return chunks_[chunk_]; }
  bool must_reduce() const;  // gradients must be reduced before a step
  bool reduces() const;      // the current or next backward reduces gradients
  void gradient_ready(FlatUnit& unit, const FlatEntry& entry);
  void check_micro_batches() const;
  void flush();
  void finish_chunk();
  void add_ties();
  void report_unused();

  ShardingContext& shared_;
  UnitGathers& gathers_;
  Reductions reductions_;
  std::vector<FlatUnit*> units_;
  std::vector<Chunk> chunks_ = std::vector<Chunk>(1);

  // State of the current backward. Between two backwards: state of the next one.
  size_t chunk_ = 0;        // index in chunks_
  bool announced_ = false;  // begin_backward() announced this backward
  bool reached_ = false;    // the backward belongs to this model
  bool last_ = true;        // this is the last backward of its step
  bool no_sync_ = false;
  bool warned_unused_ = false;
};

}  // namespace shale::comm
