#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// A link of PCI Express, as it is at most: idle GPUs lower its speed, not its width.
struct PciLink {
  int width = 0;             // lanes in use; 0: unknown
  int possible_width = 0;    // lanes that the device has; 0: unknown
  double gigatransfers = 0;  // per second and lane, which both ends are capable of; 0: unknown
  double bytes_per_second() const;  // in one direction, after line coding; 0: unknown
};

// Where a device is in its machine, by what Linux shows of it. What it does not show, or shows in
// another form than its documentation says (Documentation/ABI/testing/sysfs-bus-pci), is unknown.
struct PciPlace {
  std::string address;  // "0000:17:00.0"
  // From the host bridge of its root complex ("pci0000:16") to the device; empty: unknown.
  std::vector<std::string> path{};
  // Entry i: from path[2 * i + 1], a root port or a port of a switch, to path[2 * i + 2].
  std::vector<PciLink> links{};
  int numa_node = -1;       // -1: unknown, or the machine has one
  std::vector<int> cpus{};  // of that node; empty: unknown
  std::string cpu_list{};   // the same, "0-15,32-47"
};

// Reads the place of the device with this address below `sys`, which tests replace. Throws nothing.
PciPlace read_pci_place(std::string_view address, const std::string& sys = "/sys");

// "0-3,8" as numbers; empty for anything else.
std::vector<int> parse_cpu_list(std::string_view text);

// What data passes between two devices, from the nearest.
enum class PciPath {
  kSwitch,       // one switch
  kSwitches,     // several switches below one root port
  kRootComplex,  // a host bridge
  kNumaNode,     // two host bridges of one NUMA node
  kSystem,       // what connects NUMA nodes
  kUnknown,
};
PciPath path_between(const PciPlace& a, const PciPlace& b);
std::string_view name_of(PciPath path);  // "one switch"

// Bytes per second that device `index` can move to host memory, and as many back, while all of
// `places` do: links that several share are divided. 0: unknown.
double host_bytes_per_second(const std::vector<PciPlace>& places, size_t index);

// "PCIe 4.0 x16": the link into the device; "PCIe, its width and speed unknown".
std::string link_text(const PciPlace& place);

}  // namespace shale
