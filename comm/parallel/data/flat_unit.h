#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/flat_buffer.h"

namespace shale::comm {

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
  const std::vector<Parameter*>& parameters() const { return parameters_; }  // as declared
  bool trainable() const;
  // Whether other units lie inside this one's module.
  bool encloses_units() const { return encloses_units_; }
  void set_encloses_units(bool encloses) { encloses_units_ = encloses; }

  void start_unshard();
  void unshard();
  void reshard();
  void reshard_after_forward();

  // Gathered when this unit is reached, in place of what the recorded order says comes next.
  std::vector<FlatUnit*> forward_prefetch, backward_prefetch;

  // Calls `ready` when the last gradient of the unit is complete in a backward.
  void set_ready_hook(std::function<void()> ready);
  void begin_backward();
  bool ready() const { return unreached_.empty(); }
  bool reached() const;  // by the backward that runs, or was last
  // Says whether this backward's gradients have been given to a reduction.
  bool reduced() const { return reduced_; }
  void start_reduce();
  bool reduction_done() const;
  void finish_reduce(bool last);
  void finish_step();
  void finish_alone();
  // Parameters that the last backward did not reach.
  std::vector<std::string> unused() const;

  int uses = 0;  // forwards whose backward is still to come

 private:
  void gradient_ready(const Parameter& parameter);

  std::string name_;
  Module& module_;
  UnitOptions options_;
  std::vector<Parameter*> parameters_;
  bool encloses_units_ = false;
  std::vector<std::unique_ptr<FlatBuffer>> buffers_;
  std::vector<const Parameter*> unreached_;
  std::function<void()> ready_;
  bool reduced_ = false;
};

}  // namespace shale::comm
