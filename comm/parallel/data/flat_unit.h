#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_buffer.h"

namespace shale::comm {

// What messages call the unit around a module: its name, or "root".
std::string unit_name(const Module& module);

// The parameters that are gathered and reduced together.
class FlatUnit {
 public:
  FlatUnit(ShardingContext& shared, const UnitPlan& plan, const UnitOptions& options);
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;
  void detach();

  const std::string& name() const { return name_; }
  Module& module() const { return module_; }
  const std::vector<std::unique_ptr<FlatBuffer>>& buffers() const { return buffers_; }
  // Of trainable buffers, and last that of tables' other uses, which only have a gradient here.
  const std::vector<FlatGradient*>& gradients() const { return gradients_; }
  ApartGradient* apart() const { return apart_.get(); }  // the latter; null: there is none
  const std::vector<Parameter*>& parameters() const { return parameters_; }  // as declared
  bool trainable() const { return !gradients_.empty(); }
  int chunk() const { return chunk_; }  // see UnitPlan
  // Whether other units lie inside this one's module.
  bool encloses_units() const { return encloses_units_; }
  void set_encloses_units(bool encloses) { encloses_units_ = encloses; }

  void fetch_masters();
  void start_unshard();
  void unshard();
  void reshard();
  void reshard_after_forward();

  // Gathered when this unit is reached, in place of what the recorded order says comes next.
  std::vector<FlatUnit*> forward_prefetch, backward_prefetch;

  // See FlatGradient.
  void prepare_backward();
  void begin_backward();
  // The gradient of a parameter is complete. Returns whether it is the unit's last.
  bool gradient_ready(const FlatEntry& entry);
  bool ready() const { return unreached_.empty(); }
  // Says whether this backward's gradients have been given to a reduction.
  bool reduced() const { return reduced_; }
  void start_reduce();
  bool reduction_done() const;
  void finish_alone();
  // What the last backward did not reach.
  const std::vector<const FlatEntry*>& unreached() const { return unreached_; }

 private:
  std::string name_;
  Module& module_;
  UnitOptions options_;
  std::vector<Parameter*> parameters_;
  bool encloses_units_ = false;
  int chunk_;
  std::vector<std::unique_ptr<FlatBuffer>> buffers_;
  std::unique_ptr<ApartGradient> apart_;
  std::vector<FlatGradient*> gradients_;
  std::vector<const FlatEntry*> unreached_;
  bool reduced_ = false;
};

}  // namespace shale::comm
