#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/kernel_check/check.h"

namespace shale::kernel_check {

// Key of a stored check: the GPU's model, the version of its driver, and the build of the program.
struct CheckedDevice {
  std::string gpu, driver, build;
  friend bool operator==(const CheckedDevice&, const CheckedDevice&) = default;
};

// Stored result of checking this host's GPU kernels.
struct StoredCheck {
  std::string file;
  CheckedDevice device;
  CheckReport report;
  std::vector<FailedKernel> failed = {};  // kernels that made the GPU fail or hang in a check
  bool finished = true;  // false: the check was interrupted by a failure, so the report is empty
  // Returns true if every case ran, so that the next start of a run need not check again.
  bool complete() const { return finished && report.not_run == 0; }
};

// Returns the folder of stored checks: shale/ in XDG_CACHE_HOME, or in ~/.cache; empty if neither
// is known. Each check is a separate file, with the host's name, because hosts may share it.
std::string check_folder();

// Returns this host's stored check of the device; nullopt if there is none. Ignores a file with a
// warning if it is damaged or describes another device.
std::optional<StoredCheck> load_check(const CheckedDevice& device);
// Writes a check to the folder; ignores check.file. If writing fails, logs a warning.
void store_check(const StoredCheck& check);
// Returns all readable checks of this host, sorted by file name.
std::vector<StoredCheck> stored_checks();

}  // namespace shale::kernel_check
