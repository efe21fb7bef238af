#pragma once

#include <cstddef>
#include <memory>

namespace shale::comm {

class MpiComm;

// Zeroed memory that all ranks on a node map: a memfd of rank 0, or an MPI window if processes may
// not open each other's file descriptors. The destructor is collective while MPI runs.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  virtual void* data() const = 0;
  // false: it is an MPI window, and SharedMemory cannot work either
  virtual bool peers_can_map() const = 0;

  // Makes the memory. try_descriptors: false: always use an MPI window. Collective.
  static std::unique_ptr<NodeMemory> create(const MpiComm& node, size_t bytes,
                                            bool try_descriptors);
};

}  // namespace shale::comm
