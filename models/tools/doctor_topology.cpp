// Examines for shale doctor where GPUs are, how they are connected, and what follows for training.
#include <algorithm>
#include <set>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/comm/hosts/numa_nodes.h"
#include "shale/models/tools/doctor.h"

namespace shale::models::doctor {
namespace {

constexpr const char* kSection = "GPU topology";

std::string per_second(double bytes) {
  return cat(static_cast<int64_t>(bytes / 1e8) / 10.0, " GB/s");
}

std::string numbers(const std::vector<size_t>& indices) {
  std::string text;
  for (const size_t index : indices) text += cat(text.empty() ? "" : ", ", index);
  return text;
}

std::string node_text(const PciPlace& place) {
  if (place.numa_node < 0) return "NUMA node unknown, or the only one";
  return cat("NUMA node ", place.numa_node,
             place.cpu_list.empty() ? "" : cat(" with CPUs ", excerpt(place.cpu_list, 40)));
}

Finding examine_place(const std::vector<PciPlace>& places, size_t index) {
  const PciPlace& place = places[index];
  Finding finding{
      .section = kSection,
      .name = cat("place of GPU ", index),
      .value = cat(excerpt(place.address, 40), ", ", node_text(place), ", ", link_text(place))};
  const double bytes = host_bytes_per_second(places, index);
  if (bytes > 0) finding.value += cat(", ", per_second(bytes), " each way at most");
  if (place.links.empty()) return finding;
  const PciLink& link = place.links.back();
  if (bytes > 0 && bytes < 0.9 * link.bytes_per_second()) {
    finding.value += " while all GPUs that share a PCIe link with it transfer data";
  }
  if (link.width > 0 && link.width < link.possible_width) {
    finding.state = State::kWarning;
    finding.value += cat("; the GPU supports ", link.possible_width, " lanes");
    finding.fix = "use a slot with all lanes and no riser, or change the lane division in the BIOS";
  }
  return finding;
}

// Describes the paths from one GPU to all others, grouped by type of path.
Finding examine_paths(const GpuMachine& machine, size_t index) {
  const MachineGpu& gpu = machine.gpus[index];
  std::string text;
  for (int kind = 0; kind <= static_cast<int>(PciPath::kUnknown); ++kind) {
    for (const bool reached : {true, false}) {
      std::vector<size_t> others;
      for (size_t other = 0; other < machine.gpus.size(); ++other) {
        if (other == index || gpu.reaches[other] != reached) continue;
        const PciPath path = path_between(gpu.place, machine.gpus[other].place);
        if (static_cast<int>(path) == kind) others.push_back(other);
      }
      if (others.empty()) continue;
      text +=
          cat(text.empty() ? "" : "; ", "to ", numbers(others), ": ",
              name_of(static_cast<PciPath>(kind)), reached ? ", peer access" : ", no peer access");
    }
  }
  return {.section = kSection, .name = cat("from GPU ", index), .value = text};
}

// Returns the bandwidth between host and the slowest GPU while all GPUs transfer; 0: unknown.
double least_bytes_per_second(const std::vector<PciPlace>& places) {
  double least = host_bytes_per_second(places, 0);
  for (size_t i = 1; i < places.size(); ++i) {
    least = std::min(least, host_bytes_per_second(places, i));
  }
  return least;
}

Finding examine_exchange(const GpuMachine& machine) {
  size_t reached = 0;
  const size_t gpus = machine.gpus.size(), pairs = gpus * (gpus - 1);
  for (const MachineGpu& gpu : machine.gpus) {
    reached += static_cast<size_t>(std::count(gpu.reaches.begin(), gpu.reaches.end(), true));
  }
  Finding finding{.section = kSection, .name = "between GPUs"};
  if (reached >= pairs) {
    finding.value = "peer access between all GPUs: NCCL copies from GPU to GPU";
    return finding;
  }
  finding.value =
      reached == 0
          ? cat("the driver refuses peer access between all GPUs (", machine.gpus[0].name,
                "): data goes through host memory, with NCCL too")
          : "the driver refuses peer access between some GPUs: their data goes through host "
            "memory, with NCCL too";
  const double bytes = least_bytes_per_second(machine.places());
  if (bytes > 0) {
    finding.value +=
        cat(", at ", per_second(bytes), " each way at most: an all-reduce of 1 GB takes ",
            static_cast<int64_t>(1e12 / bytes), " ms or more");
  }
  return finding;
}

// Describes which NUMA nodes the ranks use if there is one rank per GPU.
Finding examine_nodes(const GpuMachine& machine) {
  std::vector<int> nodes;
  std::set<int> distinct;
  for (const MachineGpu& gpu : machine.gpus) {
    nodes.push_back(gpu.place.numa_node);
    distinct.insert(gpu.place.numa_node);
  }
  Finding finding{.section = kSection, .name = "ranks"};
  if (distinct.size() == 1) {
    finding.value = *distinct.begin() < 0 ? "NUMA nodes are unknown, so ranks are not bound to CPUs"
                                          : "all GPUs are at one NUMA node; ranks are bound to "
                                            "its CPUs if these are enough";
  } else if (distinct.contains(-1)) {
    finding.value = "the NUMA nodes of some GPUs are unknown, so --comm mpi ignores NUMA nodes";
  } else if (comm::nodes_keep_tree(nodes)) {
    finding.value =
        cat("bound to the CPUs of their GPU's NUMA node; --comm mpi reduces inside each of ",
            distinct.size(), " NUMA nodes first, then once between them");
  } else {
    finding.value =
        "bound to the CPUs of their GPU's NUMA node; --comm mpi ignores NUMA nodes, because "
        "these must have the same number of GPUs, a power of two, and consecutive GPUs each";
  }
  return finding;
}

}  // namespace

void examine_topology(Findings& findings, const GpuMachine& machine) {
  const std::vector<PciPlace> places = machine.places();
  for (size_t i = 0; i < places.size(); ++i) findings.push_back(examine_place(places, i));
  if (places.size() < 2) return;
  for (size_t i = 0; i < places.size(); ++i) findings.push_back(examine_paths(machine, i));
  findings.push_back(examine_exchange(machine));
  findings.push_back(examine_nodes(machine));
}

}  // namespace shale::models::doctor
