#pragma once

#include <vector>

#include "shale/comm/parallel/data/coded_collectives.h"

namespace shale::comm {

// The values and f32 masters of a flat buffer: when values are gathered from the masters of all
// ranks, and when they are freed (see FlatBuffer). While the values are not up to date, the
// parameters have no memory: using one is an error.
class FlatValues {
 public:
  // Allocates, and gives `shard` its masters. Both outlive this.
  FlatValues(const BufferSpec& spec, OptimShard& shard);
  ~FlatValues() { let_go(std::move(gather_)); }
  void write_initial();

  void fetch_masters();  // of a disk, so that start_unshard() need not wait for it
  void start_unshard();  // starts the gather, unless values are up to date or on their way
  void unshard();        // the same, and waits: the parameters can be used
  // Frees what stage 3 gathered; to_small_group: but keeps a shard of ShardGroups::reshard, and
  // what has an owner.
  void reshard(bool to_small_group);
  // After this rank's masters were changed by other means than the optimizer.
  void masters_changed();
  // Waits for a step that is still under way off the device. Before values or masters are used
  // other than by unshard().
  void wait_for_step() const;
  void unbind();  // the parameters have no memory any more

 private:
  Event upload_masters(const Tensor& part);
  void set_stale();
  void free_values();
  void bind_values();
  Tensor allocate_values();
  Tensor gather_input();
  void* gather_stream() const;
  Work start_gather(const CollectiveOptions& options);
  void wait_for_gather();

  const BufferSpec& spec_;
  OptimShard& shard_;
  Tensor values_;       // whole, in the compute dtype; of what is gathered in fp8 on request
  Tensor small_shard_;  // of ShardGroups::reshard; in the compute dtype, or of fp8
  bool ready_ = false;
  bool gathering_ = false;
  CodedGather coded_;
  Fp8Gather fp8_;
  Work gather_;
  Event gathered_;  // where gather_stream() has come to then
};

}  // namespace shale::comm
