#pragma once

#include <nccl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shale::test {

enum class Transmission {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kSend,
  kReceive
};

// Arguments of a collective, or of a send or receive.
struct NcclCall {
  Transmission kind;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or root
};

// Data that the ranks of a communicator exchange between processes.
class Transfer {
 public:
  struct Part {
    std::string name;  // equal on the ranks of the part, and for no other one
    int rank = 0, ranks = 0;
  };
  virtual ~Transfer() = default;
  virtual bool joined() = 0;  // true when all ranks have opened the transfer
  // Part `number` of the communicator: this rank's, when all ranks have called this.
  virtual std::optional<Part> split(int number, int color, int key) = 0;
  // Queues a collective, or sends and receives that run together.
  virtual void launch(const std::vector<NcclCall>& calls, cudaStream_t stream) = 0;
  // Ends what is queued. After it, no stream of a launch is used any more.
  virtual void abort() = 0;
};

// Only in the library that moves data between emulated GPUs.
__attribute__((weak)) std::shared_ptr<Transfer> open_transfer(const Transfer::Part& part);

}  // namespace shale::test
