#pragma once

#include <cstddef>
#include <memory>

namespace shale::comm {

class MpiComm;

// Zeroed memory that all ranks of one node's communicator map: a memfd of rank 0, or an MPI window
// if processes may not open each other's descriptors. The destructor is collective while MPI runs.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  virtual void* data() const = 0;
  virtual bool peers_can_map() const = 0;  // false: an MPI window; SharedMemory cannot work

  // Collective. try_descriptors false: always use a window.
  static std::unique_ptr<NodeMemory> create(const MpiComm& node, size_t bytes,
                                            bool try_descriptors);
};

}  // namespace shale::comm
