#include "shale/comm/node/node_memory.h"

#include <cstring>
#include <optional>

#include "shale/comm/mpi_internal.h"
#include "shale/comm/node/shared_segment.h"

namespace shale::comm {
namespace {

class DescriptorMemory final : public NodeMemory {
 public:
  explicit DescriptorMemory(SharedSegment segment) : segment_(std::move(segment)) {}
  void* data() const override { return segment_.data(); }
  bool peers_can_map() const override { return true; }

 private:
  SharedSegment segment_;
};

class WindowMemory final : public NodeMemory {
 public:
  WindowMemory(const MpiComm& node, size_t bytes) {
    const bool owner = node.rank() == 0;
    void* base = nullptr;
    check_mpi(MPI_Win_allocate_shared(owner ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL,
                                      node.get(), &base, &window_),
              "MPI_Win_allocate_shared");
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, &data_), "MPI_Win_shared_query");
    if (owner) std::memset(data_, 0, bytes);
    check_mpi(MPI_Barrier(node.get()), "MPI_Barrier");
  }
  ~WindowMemory() override {
    if (mpi_running()) MPI_Win_free(&window_);  // MPI_Win_free() is collective
  }
  void* data() const override { return data_; }
  bool peers_can_map() const override { return false; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  void* data_ = nullptr;
};

}  // namespace

std::unique_ptr<NodeMemory> NodeMemory::create(const MpiComm& node, size_t bytes,
                                               bool try_descriptors) {
  if (!try_descriptors) return std::make_unique<WindowMemory>(node, bytes);
  std::optional<SharedSegment> segment;
  SegmentAddress address;
  if (node.rank() == 0) {
    segment = SharedSegment::create(bytes);
    address = segment->address();
  }
  check_mpi(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, node.get()), "MPI_Bcast");
  if (!segment) segment = SharedSegment::attach(address);
  int mapped = segment.has_value() ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, node.get()), "MPI_Allreduce");
  if (mapped == 0) return std::make_unique<WindowMemory>(node, bytes);
  return std::make_unique<DescriptorMemory>(std::move(*segment));
}

}  // namespace shale::comm
