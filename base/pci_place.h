#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// A PCI Express link at full speed. (An idle GPU lowers the current speed, but not the width.)
struct PciLink {
  int width = 0;                    // lanes in use; 0: unknown
  int possible_width = 0;           // lanes that the device supports; 0: unknown
  double gigatransfers = 0;         // 10^9 transfers/s and lane that both ends support; 0: unknown
  double bytes_per_second() const;  // bandwidth in one direction, after line encoding; 0: unknown
};

// Position of a device in the machine's PCI topology, as Linux shows it. A value is unknown if
// Linux does not show it, or does not show it as documented
// (Documentation/ABI/testing/sysfs-bus-pci).
struct PciPlace {
  std::string address;  // "0000:17:00.0"
  // Names on the way from the host bridge of the root complex ("pci0000:16") to the device; empty:
  // unknown.
  std::vector<std::string> path{};
  // links[i] leads from path[2 * i + 1], a root port or a switch port, to path[2 * i + 2].
  std::vector<PciLink> links{};
  int numa_node = -1;       // -1: unknown, or the machine has only one
  std::vector<int> cpus{};  // CPUs of numa_node; empty: unknown
  std::string cpu_list{};   // `cpus` as text, "0-15,32-47"
};

// Reads the position of the device with this address from `sys`. Does not throw.
PciPlace read_pci_place(std::string_view address, const std::string& sys = "/sys");

// Parses "0-3,8" to numbers; returns an empty list for any other text.
std::vector<int> parse_cpu_list(std::string_view text);

// The farthest component on the path between two devices. The values are ordered from the nearest
// to the farthest.
enum class PciPath {
  kSwitch,       // one switch
  kSwitches,     // several switches below one root port
  kRootComplex,  // a host bridge
  kNumaNode,     // two host bridges of one NUMA node
  kSystem,       // the interconnect of NUMA nodes
  kUnknown,
};
PciPath path_between(const PciPlace& a, const PciPlace& b);
std::string_view name_of(PciPath path);  // "one switch"

// Bandwidth between device `index` and host memory in each direction, in bytes/s, if all devices in
// `places` copy at the same time: the bandwidth of a shared link is divided. 0: unknown.
double host_bytes_per_second(const std::vector<PciPlace>& places, size_t index);

// Describes the link into the device: "PCIe 4.0 x16", or "PCIe of unknown width and speed".
std::string link_text(const PciPlace& place);

}  // namespace shale
