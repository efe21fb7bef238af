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
  int peer = 0;  // rank to send to or receive from, or the root
};

// Data that the ranks of a communicator exchange between processes.
class Transfer {
 public:
  struct Part {
    std::string name;  // unique name of this part, equal on its ranks
    int rank = 0, ranks = 0;
  };
  virtual ~Transfer() = default;
  virtual bool joined() = 0;  // Returns true if all ranks have opened the transfer.
  // Returns this rank's part of split `number` of the communicator, or nothing while a rank has not
  // called this yet.
  virtual std::optional<Part> split(int number, int color, int key) = 0;
  // Queues a collective, or sends and receives that run together.
  virtual void launch(const std::vector<NcclCall>& calls, cudaStream_t stream) = 0;
  // Ends all queued calls. After this, the transfer uses no stream any more.
  virtual void abort() = 0;
};

// Defined only in the library that moves data between emulated GPUs; null in the other one.
__attribute__((weak)) std::shared_ptr<Transfer> open_transfer(const Transfer::Part& part);

}  // namespace shale::test
