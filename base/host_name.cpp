#include "shale/base/host_name.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace shale {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  return host_name() + " " + boot;
}

}  // namespace shale
