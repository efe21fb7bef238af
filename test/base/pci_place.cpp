// Reads GPU locations from folders that imitate /sys.
#include "shale/base/pci_place.h"

#include <sys/stat.h>

#include <fstream>

#include "shale/base/error.h"
#include "shale/base/gpu_machine.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

struct Speed {
  std::string text = "16.0 GT/s PCIe";
  int width = 16, possible = 16;
};

// A folder with the layout of /sys, to which tests add devices.
class Sys {
 public:
  const fs::path& root() const { return folder_.path(); }

  // `path` leads from the host bridge to the device: "pci0000:00/0000:00:01.0/0000:01:00.0".
  void add(const std::string& path, const std::string& node, const std::string& cpus,
           const Speed& speed = {}) const {
    const fs::path device = root() / "devices" / path;
    fs::create_directories(device);
    for (fs::path at = device; at.filename().string().find('.') != std::string::npos;
         at = at.parent_path()) {
      if (!fs::exists(at / "max_link_speed")) link(at, speed);
    }
    link(device, speed);
    put(device / "numa_node", node);
    put(device / "local_cpulist", cpus);
    fs::create_directories(root() / "bus/pci/devices");
    fs::create_symlink(device, root() / "bus/pci/devices" / device.filename());
  }
  static void put(const fs::path& file, const std::string& text) {
    std::ofstream(file) << text << '\n';
  }
  PciPlace read(const std::string& address) const { return read_pci_place(address, root()); }

 private:
  static void link(const fs::path& at, const Speed& speed) {
    put(at / "max_link_speed", speed.text);
    // The link is idle, so its current speed is lower than its maximum.
    put(at / "current_link_speed", "2.5 GT/s PCIe");
    put(at / "current_link_width", std::to_string(speed.width));
    put(at / "max_link_width", std::to_string(speed.possible));
  }
  test::TempDir folder_;
};

// A host with two sockets. The first socket has a switch with two GPUs, a GPU beside the switch,
// and a GPU on another host bridge. The second socket has a GPU that uses half of its lanes.
const std::string kPort = "pci0000:16/0000:16:01.0/";
const std::string kSwitch = kPort + "0000:17:00.0/";

void add_machine(const Sys& sys) {
  sys.add(kSwitch + "0000:18:00.0/0000:19:00.0", "0", "0-3,8-11");
  sys.add(kSwitch + "0000:18:01.0/0000:1a:00.0", "0", "0-3,8-11");
  sys.add("pci0000:16/0000:16:03.0/0000:1d:00.0", "0", "0-3,8-11");
  sys.add("pci0000:3a/0000:3a:01.0/0000:3b:00.0", "0", "0-3,8-11");
  sys.add("pci0000:ac/0000:ac:01.0/0000:ad:00.0", "1", "4-7,12-15",
          {.text = "8.0 GT/s PCIe", .width = 8});
}

const std::vector<std::string> kGpus = {"0000:19:00.0", "0000:1a:00.0", "0000:1d:00.0",
                                        "0000:3b:00.0", "0000:ad:00.0"};

}  // namespace

TEST_CASE("a GPU's place: bridges, NUMA node, CPUs, and its link at its best", "[topology]") {
  const Sys sys;
  add_machine(sys);
  // CUDA writes the PCI domain with eight digits.
  const PciPlace place = sys.read("00000000:1A:00.0");
  CHECK(place.address == "0000:1a:00.0");
  CHECK(place.path == std::vector<std::string>{"pci0000:16", "0000:16:01.0", "0000:17:00.0",
                                               "0000:18:01.0", "0000:1a:00.0"});
  CHECK(place.numa_node == 0);
  CHECK(place.cpus == std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11});
  REQUIRE(place.links.size() == 2);
  // 16 lanes at 16 GT/s with 128b/130b encoding, 8 bits per byte.
  CHECK(place.links[1].bytes_per_second() == Approx(16 * 16e9 * 128 / 130 / 8));
  CHECK(link_text(place) == "PCIe 4.0 x16");
  CHECK(link_text(sys.read("0000:ad:00.0")) == "PCIe 3.0 x8");
  CHECK(sys.read("0000:ad:00.0").links[0].possible_width == 16);
}

TEST_CASE("what lies between two GPUs", "[topology]") {
  const Sys sys;
  add_machine(sys);
  sys.add(kSwitch + "0000:18:02.0/0000:20:00.0/0000:21:00.0/0000:22:00.0", "0", "0-3");
  std::vector<PciPlace> places;
  for (const std::string& gpu : kGpus) places.push_back(sys.read(gpu));
  const auto from_first = [&](size_t other) { return path_between(places[0], places[other]); };
  CHECK(from_first(1) == PciPath::kSwitch);
  CHECK(from_first(2) == PciPath::kRootComplex);
  CHECK(from_first(3) == PciPath::kNumaNode);
  CHECK(from_first(4) == PciPath::kSystem);
  CHECK(path_between(places[4], places[0]) == PciPath::kSystem);
  CHECK(path_between(places[0], sys.read("0000:22:00.0")) == PciPath::kSwitches);
  CHECK(path_between(places[0], PciPlace{}) == PciPath::kUnknown);
}

TEST_CASE("GPUs behind one switch share its link to the host", "[topology]") {
  const Sys sys;
  add_machine(sys);
  std::vector<PciPlace> places;
  for (const std::string& gpu : kGpus) places.push_back(sys.read(gpu));
  const double whole = places[0].links[1].bytes_per_second();
  CHECK(host_bytes_per_second(places, 0) == whole / 2);
  CHECK(host_bytes_per_second(places, 1) == whole / 2);
  CHECK(host_bytes_per_second(places, 2) == whole);
  CHECK(host_bytes_per_second(places, 4) == Approx(8 * 8e9 * 128 / 130 / 8));
  CHECK(host_bytes_per_second({PciPlace{}}, 0) == 0);
}

TEST_CASE("what is wrong below /sys is unknown", "[topology]") {
  const Sys sys;
  add_machine(sys);
  const auto device = sys.root() / "devices/pci0000:ac/0000:ac:01.0/0000:ad:00.0";
  const auto place = [&] { return sys.read("0000:ad:00.0"); };

  for (const char* node : {"-1", "", "x", "1e99", "99999999999999999999", "4096", "0 1"}) {
    CAPTURE(node);
    Sys::put(device / "numa_node", node);
    CHECK(place().numa_node == -1);
  }
  for (const char* cpus : {"", "3-1", "0-", "-3", "1,", ",1", "a", "0-999999999", "0 - 3"}) {
    CAPTURE(cpus);
    Sys::put(device / "local_cpulist", cpus);
    CHECK(place().cpus.empty());
  }
  for (const char* speed :
       {"", "Unknown", "Unknown speed", "fast GT/s", "-8 GT/s", "inf GT/s", "8.0GT/s"}) {
    CAPTURE(speed);
    Sys::put(device / "max_link_speed", speed);
    CHECK(link_text(place()) == "PCIe of unknown width and speed");
    CHECK(host_bytes_per_second({place()}, 0) == 0);
  }
  Sys::put(device / "max_link_speed", "8.0 GT/s");
  for (const char* width : {"0", "255", "-1", "x16"}) {
    CAPTURE(width);
    Sys::put(device / "current_link_width", width);
    CHECK(place().links[0].width == 0);
  }
  Sys::put(device / "local_cpulist", std::string(1 << 20, '0'));  // a CPU list of 1 MiB
  CHECK(place().cpus.empty());
  fs::remove(device / "numa_node");
  fs::create_directory(device / "numa_node");
  CHECK(place().numa_node == -1);

  for (const char* address : {"", "..", "0000:ff:00.0", "../../../etc", "0000:ad:00", "card0",
                              "zzzz:ad:00.0", "0000:ad:00.0/.."}) {
    CAPTURE(address);
    CHECK(sys.read(address).path.empty());
    CHECK(sys.read(address).numa_node == -1);
  }
  CHECK(read_pci_place("0000:ad:00.0", "/nowhere").path.empty());
  // One link leads out of the device tree, and one to itself.
  const auto links = sys.root() / "bus/pci/devices";
  fs::create_symlink("/", links / "0000:aa:00.0");
  fs::create_symlink(links / "0000:ab:00.0", links / "0000:ab:00.0");
  CHECK(sys.read("0000:aa:00.0").path.empty());
  CHECK(sys.read("0000:ab:00.0").path.empty());
}

TEST_CASE("a folder stands for a machine with GPUs", "[topology]") {
  const test::TempDir folder;
  folder.write("gpus", "0000:19:00.0 89 - NVIDIA GeForce RTX 4090\n0000:1a:00.0 86 0 RTX 3090\n");
  const GpuMachine machine = read_gpu_machine(folder.path());
  REQUIRE(machine.gpus.size() == 2);
  CHECK(machine.gpus[0].name == "NVIDIA GeForce RTX 4090");
  CHECK(machine.gpus[1].arch == 86);
  CHECK(machine.gpus[1].reaches == std::vector<bool>{true, false});
  CHECK(machine.gpus[1].place.numa_node == -1);

  const auto message = [&](const char* text) {
    folder.write("gpus", text);
    return test::message_of<ConfigError>([&] { read_gpu_machine(folder.path()); });
  };
  CHECK(message("0000:19:00.0 89 -\n").find("line 1") != std::string::npos);
  CHECK(message("0000:19:00.0 89 1 A\n").find("numbers below 1") != std::string::npos);
  CHECK(message("0000:19:00.0 x - A\n").find("capability 'x'") != std::string::npos);
  CHECK(message("").find("lists no GPU") != std::string::npos);
  CHECK(test::message_of<ConfigError>([] { read_gpu_machine("/nowhere"); }).find("cannot read") !=
        std::string::npos);
}

}  // namespace shale
