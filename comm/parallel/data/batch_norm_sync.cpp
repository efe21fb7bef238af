#include "shale/comm/parallel/data/batch_norm_sync.h"

#include "shale/runtime/nn/conv.h"

namespace shale::comm {
namespace {

std::shared_ptr<const BatchPeers> peers_over(ProcessGroup& group) {
  auto peers = std::make_shared<BatchPeers>();
  peers->gather = [&group](const Tensor& x) {
    Tensor all = empty(x.context(), {group.size(), x.numel()}, x.dtype(), MemoryTag::kComm,
                       "moments of batch norm");
    group.all_gather(x, all, {.tag = "batch norm", .stream = x.exec().stream}).wait();
    return all;
  };
  peers->sum = [&group](const Tensor& x) {
    group.all_reduce_sum(x, {.tag = "batch norm gradient", .stream = x.exec().stream}).wait();
  };
  return peers;
}

void synchronise(Module& module, const std::shared_ptr<const BatchPeers>& peers) {
  if (auto* norm = dynamic_cast<nn::BatchNorm*>(&module)) norm->set_peers(peers);
  for (Module* child : module.children()) synchronise(*child, peers);
}

}  // namespace

void synchronise_batch_norm(Module& module, ProcessGroup& group) {
  synchronise(module, group.size() > 1 ? peers_over(group) : nullptr);
}

}  // namespace shale::comm
