#pragma once

#include <vector>

#include "shale/comm/parallel/data/coded_collectives.h"

namespace shale::comm {

// Values and f32 masters of a flat buffer. Gathers the values from the masters of all ranks, and
// frees them (see FlatBuffer). While values are out of date, the parameters have no memory, and
// using them is an error.
class FlatValues {
 public:
  // Allocates the masters and passes them to `shard`. Both arguments must outlive this object.
  FlatValues(const BufferSpec& spec, OptimShard& shard);
  ~FlatValues() { let_go(std::move(gather_)); }
  void write_initial();

  void fetch_masters();  // prefetches masters from disk, so that start_unshard() need not wait
  void start_unshard();  // starts the gather, unless it is running or values are up to date
  void unshard();        // calls start_unshard() and waits; then the parameters can be used
  // Frees what stage 3 gathered. to_small_group: keeps this rank's shard of ShardGroups::reshard; a
  // buffer with an owner is kept whole.
  void reshard(bool to_small_group);
  // Call after changing this rank's masters without the optimizer.
  void masters_changed();
  // Waits for an optimizer step on the host. Call it before using values or masters without
  // unshard().
  void wait_for_step() const;
  void unbind();  // the parameters have no memory afterwards

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
  Tensor values_;       // whole values in the compute dtype; with fp8 gathers, only if read
  Tensor small_shard_;  // this rank's shard of ShardGroups::reshard, in the compute dtype or in fp8
  bool ready_ = false;
  bool gathering_ = false;
  CodedGather coded_;
  Fp8Gather fp8_;
  Work gather_;
  Event gathered_;  // recorded on gather_stream() after the gather
};

}  // namespace shale::comm
