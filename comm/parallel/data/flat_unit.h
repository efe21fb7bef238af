#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_buffer.h"

namespace shale::comm {

// Name of a module's unit in messages: the module's name, or "root".
std::string unit_name(const Module& module);

// Parameters that are gathered and reduced together.
class FlatUnit {
 public:
  FlatUnit(ShardingContext& shared, const UnitPlan& plan, const UnitOptions& options);
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;
  void detach();

  const std::string& name() const { return name_; }
  Module& module() const { return module_; }
  const std::vector<std::unique_ptr<FlatBuffer>>& buffers() const { return buffers_; }
  // Gradients of the trainable buffers. The last one is that of apart(), if there is one.
  const std::vector<FlatGradient*>& gradients() const { return gradients_; }
  // Gradients of the second uses of tied tables; null if the unit has none.
  ApartGradient* apart() const { return apart_.get(); }
  const std::vector<Parameter*>& parameters() const { return parameters_; }  // in declaration order
  bool trainable() const { return !gradients_.empty(); }
  int chunk() const { return chunk_; }  // see UnitPlan
  // True if other units are inside this unit's module.
  bool encloses_units() const { return encloses_units_; }
  void set_encloses_units(bool encloses) { encloses_units_ = encloses; }

  void fetch_masters();
  void start_unshard();
  void unshard();
  void reshard();
  void reshard_after_forward();

  // Units to gather ahead when this unit is reached. Empty: the next units in the recorded order.
  std::vector<FlatUnit*> forward_prefetch, backward_prefetch;

  // See FlatGradient.
  void prepare_backward();
  void begin_backward();
  // Called when a parameter's gradient is complete. Returns true for the last one of the unit.
  bool gradient_ready(const FlatEntry& entry);
  bool ready() const { return unreached_.empty(); }
  // True if the gradients of this backward have been passed to a reduction.
  bool reduced() const { return reduced_; }
  void start_reduce();
  bool reduction_done() const;
  void finish_alone();
  // Parameters that the last backward did not reach.
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
