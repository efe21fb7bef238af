#include "shale/models/training/numa_setup.h"

#include <algorithm>
#include <sstream>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/gpu_machine.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/comm/hosts/numa_nodes.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::models {
namespace {

// Returns the PCI location of this rank's GPU. It is unknown for a CPU, and for an emulated GPU
// that is not in a simulated machine.
PciPlace place_of(const Device& device, const comm::World& world) {
  if (device.type == DeviceType::kCuda) {
    const GpuList gpus = visible_gpus();
    const auto index = static_cast<size_t>(device.index);
    return index < gpus.ids.size() ? read_pci_place(gpus.ids[index]) : PciPlace{};
  }
  const auto machine = device.type == DeviceType::kEmu ? simulated_machine() : std::nullopt;
  if (!machine) return {};
  return machine->gpus[static_cast<size_t>(world.local_rank()) % machine->gpus.size()].place;
}

struct Places {
  std::vector<std::string> hosts;  // host of each rank
  std::vector<int> nodes;          // NUMA node of each rank; -1: unknown
};

Places gather_places(comm::World& world, int node) {
  Places all;
  for (const std::string& text :
       world.group()->all_gather_bytes(cat(host_identity(), '\n', node), "NUMA nodes")) {
    std::istringstream lines(text);
    std::getline(lines, all.hosts.emplace_back());
    lines >> all.nodes.emplace_back(-1);
  }
  return all;
}

}  // namespace

void set_up_numa_nodes(const RunConfig& config, const Device& device, comm::World& world) {
  const PciPlace place = place_of(device, world);
  const Places all = gather_places(world, place.numa_node);
  const auto rank = static_cast<size_t>(world.rank());
  // With NCCL, host memory carries mostly control messages, for which reducing in two levels only
  // adds latency.
  const bool nccl = device.type == DeviceType::kCuda && config.transport != comm::Transport::kMpi;
  std::vector<int> nodes = comm::numa_nodes(nccl && config.numa_ranks == 0 ? 1 : config.numa_ranks,
                                            all.hosts, all.nodes);
  if (!nodes.empty()) {
    std::vector<int> distinct = nodes;
    std::sort(distinct.begin(), distinct.end());
    const auto count = std::unique(distinct.begin(), distinct.end()) - distinct.begin();
    log_info("reducing in host memory: within ", count, " NUMA nodes of ",
             static_cast<int64_t>(nodes.size()) / count, " ranks, then between nodes");
  }
  world.set_numa_nodes(std::move(nodes));
  if (place.numa_node < 0 || config.numa_ranks == 1) return;
  int64_t beside = 0;  // number of ranks on this NUMA node, including this one
  for (size_t other = 0; other < all.nodes.size(); ++other) {
    beside += all.nodes[other] == place.numa_node && all.hosts[other] == all.hosts[rank] ? 1 : 0;
  }
  bind_to_cpus(place.cpus, static_cast<int>(beside), world.local_size());
}

}  // namespace shale::models
