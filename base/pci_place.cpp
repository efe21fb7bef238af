#include "shale/base/pci_place.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale {
namespace {

constexpr int kMostCpus = 16384;
constexpr size_t kLongestLine = 4096;

// First line of a file in /sys. Empty if the file cannot be read or the line has no end.
std::string line_of(const std::filesystem::path& file) {
  std::array<char, kLongestLine> text{};
  std::ifstream stream(file);
  if (stream.read(text.data(), text.size())) return "";
  const std::string_view read(text.data(), static_cast<size_t>(stream.gcount()));
  return std::string(read.substr(0, read.find('\n')));
}

// Returns the integer in the file if it is in [least, most], and `otherwise` if not.
int number_of(const std::filesystem::path& file, int least, int most, int otherwise) {
  const auto value = parse_int(line_of(file));
  return value && *value >= least && *value <= most ? static_cast<int>(*value) : otherwise;
}

// Parses "16.0 GT/s PCIe", or "8 GT/s" of older kernels. Returns 0 for anything else.
double speed_of(const std::filesystem::path& file) {
  const std::string line = line_of(file);
  const size_t blank = line.find(' ');
  if (blank == line.npos || !std::string_view(line).substr(blank).starts_with(" GT/s")) return 0;
  const auto value = parse_real(std::string_view(line).substr(0, blank));
  return value && *value > 0 && *value < 1024 ? *value : 0;
}

bool all_hex(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// True for "0000:17:00.0"; the domain has four or more digits.
bool is_address(std::string_view text) {
  const size_t n = text.size();
  return n >= 12 && n <= 16 && text[n - 2] == '.' && text[n - 5] == ':' && text[n - 8] == ':' &&
         all_hex(text.substr(0, n - 8)) && all_hex(text.substr(n - 7, 2)) &&
         all_hex(text.substr(n - 4, 2)) && all_hex(text.substr(n - 1));
}

// Names of the components from the host bridge to the device. Empty if `device` is not a path of
// PCI devices.
std::vector<std::string> bridges(const std::filesystem::path& device) {
  std::vector<std::string> path;
  for (const auto& part : device) {
    const std::string name = part.string();
    if (name.starts_with("pci") && name.find(':') != name.npos) path.clear();
    if (!path.empty() || name.starts_with("pci")) path.push_back(name);
  }
  const bool whole = path.size() > 1 && path.front().find(':') != std::string::npos &&
                     std::all_of(path.begin() + 1, path.end(), is_address);
  return whole ? path : std::vector<std::string>();
}

PciLink read_link(const std::filesystem::path& port, const std::filesystem::path& device) {
  const double above = speed_of(port / "max_link_speed");
  const double below = speed_of(device / "max_link_speed");
  return {.width = number_of(device / "current_link_width", 1, 32, 0),
          .possible_width = number_of(device / "max_link_width", 1, 32, 0),
          .gigatransfers = above > 0 && below > 0 ? std::min(above, below) : 0};
}

size_t common_parts(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  size_t same = 0;
  while (same < a.size() && same < b.size() && a[same] == b[same]) ++same;
  return same;
}

}  // namespace

// Subtracts the line encoding (PCI Express Base Specification). Up to 5 GT/s, 8 of 10 bits are
// data; at higher rates, 128 of 130.
double PciLink::bytes_per_second() const {
  const double coding = gigatransfers <= 5 ? 0.8 : 128.0 / 130;
  return gigatransfers * 1e9 * width * coding / 8;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    if (comma + 1 == text.size()) return {};
    text.remove_prefix(std::min(text.size(), comma + 1));
    const size_t dash = range.find('-');
    const auto first = parse_int(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_int(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return {};
    for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    if (cpus.size() > kMostCpus) return {};
  }
  return cpus;
}

PciPlace read_pci_place(std::string_view address, const std::string& sys) {
  PciPlace place{.address = std::string(address)};
  for (char& c : place.address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  // CUDA's PCI domains may have eight digits.
  while (place.address.size() > 12 && place.address.front() == '0') place.address.erase(0, 1);
  if (!is_address(place.address)) return place;
  std::error_code error;
  const auto device = std::filesystem::canonical(
      std::filesystem::path(sys) / "bus/pci/devices" / place.address, error);
  if (error) return place;
  place.numa_node = number_of(device / "numa_node", 0, 4095, -1);
  place.cpus = parse_cpu_list(line_of(device / "local_cpulist"));
  if (!place.cpus.empty()) place.cpu_list = line_of(device / "local_cpulist");
  place.path = bridges(device);
  std::filesystem::path folder = device;
  for (size_t part = place.path.size(); part-- > 2; folder = folder.parent_path()) {
    if (part % 2 != 0) continue;  // the link between the two ports of a switch is inside it
    place.links.insert(place.links.begin(), read_link(folder.parent_path(), folder));
  }
  return place;
}

PciPath path_between(const PciPlace& a, const PciPlace& b) {
  if (a.path.empty() || b.path.empty()) return PciPath::kUnknown;
  const size_t same = common_parts(a.path, b.path);
  if (same > 1) {
    // A switch has one upstream port and one downstream port for each device.
    const bool one = a.path.size() - same <= 2 && b.path.size() - same <= 2;
    return one ? PciPath::kSwitch : PciPath::kSwitches;
  }
  if (same == 1) return PciPath::kRootComplex;
  return a.numa_node == b.numa_node ? PciPath::kNumaNode : PciPath::kSystem;
}

std::string_view name_of(PciPath path) {
  switch (path) {
    case PciPath::kSwitch: return "one switch";
    case PciPath::kSwitches: return "several switches";
    case PciPath::kRootComplex: return "a root complex";
    case PciPath::kNumaNode: return "two root complexes";
    case PciPath::kSystem: return "two NUMA nodes";
    case PciPath::kUnknown: break;
  }
  return "unknown";
}

double host_bytes_per_second(const std::vector<PciPlace>& places, size_t index) {
  const PciPlace& place = places[index];
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < place.links.size(); ++i) {
    const size_t device = 2 * i + 2;
    const auto users = std::count_if(places.begin(), places.end(), [&](const PciPlace& other) {
      return common_parts(place.path, other.path) > device;
    });
    least = std::min(least, place.links[i].bytes_per_second() / static_cast<double>(users));
  }
  return place.links.empty() ? 0 : least;
}

std::string link_text(const PciPlace& place) {
  if (place.links.empty() || place.links.back().bytes_per_second() == 0) {
    return "PCIe of unknown width and speed";
  }
  const PciLink& link = place.links.back();
  int generation = 1;
  for (double speed = 2.5; speed < link.gigatransfers; speed = speed == 5 ? 8 : speed * 2) {
    ++generation;
  }
  return cat("PCIe ", generation, ".0 x", link.width);
}

}  // namespace shale
