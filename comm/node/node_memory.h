#pragma once

#include <cstddef>
#include <memory>

namespace shale::comm {

class MpiComm;

// Zeroed memory that all ranks of one node's communicator map: a memfd of rank 0 or, where
// processes may not open each other's descriptors, a window of MPI's.
// The destructor is collective while MPI runs.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  virtual void* data() const = 0;
  virtual bool peers_can_map() const = 0;  // false: a window; SharedMemory will not work either

  // Collective. try_descriptors false: a window in any case.
  static std::unique_ptr<NodeMemory> create(const MpiComm& node, size_t bytes,
                                            bool try_descriptors);
};

}  // namespace shale::comm
