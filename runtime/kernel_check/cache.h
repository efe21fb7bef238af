#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/kernel_check/check.h"

namespace shale::kernel_check {

// Key of a stored check: the GPU's model, its driver and the build of the program.
struct CheckedDevice {
  std::string gpu, driver, build;
  friend bool operator==(const CheckedDevice&, const CheckedDevice&) = default;
};

// A stored check of this host.
struct StoredCheck {
  std::string file;
  CheckedDevice device;
  CheckReport report;
  std::vector<FailedKernel> failed = {};  // kernels that made the GPU fail or hang in a check
  bool finished = true;                   // false: the last check failed, the report is empty
};

// Returns the folder of stored checks: shale/ in XDG_CACHE_HOME, or in ~/.cache; empty if neither
// is known. Each check is a separate file, with the host's name, because hosts may share it.
std::string check_folder();

// Returns this host's stored check of the device; nothing if there is none. A file that is damaged,
// or of another device, is ignored with a warning.
std::optional<StoredCheck> load_check(const CheckedDevice& device);
// Stores a check, whose `file` is ignored; if that is not possible, warns and goes on.
void store_check(const StoredCheck& check);
// Returns all readable checks of this host, by file name.
std::vector<StoredCheck> stored_checks();

}  // namespace shale::kernel_check
