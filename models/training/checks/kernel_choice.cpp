#include "shale/models/training/checks/kernel_choice.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/runtime/kernel_check/cache.h"
#include "shale/runtime/kernel_check/kernel_parts.h"
#include "shale/runtime/tensor/gpu_sensors.h"

namespace shale::models {
namespace {

using kernel_check::CheckedDevice;
using kernel_check::CheckReport;
using kernel_check::LeftOut;
using kernel_check::StoredCheck;

constexpr const char* kChoiceTag = "kernel check";

bool is_wanted(const Device& device) {
  const char* const value = std::getenv("SHALE_KERNEL_CHECK");
  const std::string_view wish = value == nullptr ? "" : value;
  if (!wish.empty() && wish != "on" && wish != "off") {
    throw ConfigError(cat("SHALE_KERNEL_CHECK: found ", wish, ", expected on or off"));
  }
  return device.type == DeviceType::kCuda  ? wish != "off"
         : device.type == DeviceType::kEmu ? wish == "on"
                                           : false;
}

// Returns nothing for a GPU whose model or driver cannot be found out.
std::optional<CheckedDevice> device_of(const Device& device) {
  if (device.type == DeviceType::kEmu) {
    return CheckedDevice{.gpu = to_string(device), .driver = "emulator", .build = build_id()};
  }
  try {
    const GpuIdentity gpu = gpu_identity(visible_gpus().ids.at(static_cast<size_t>(device.index)));
    return CheckedDevice{.gpu = gpu.model, .driver = gpu.driver, .build = build_id()};
  } catch (const std::exception& error) {
    log_info("the check of the GPU's kernels is not stored: ", error.what());
    return {};
  }
}

// Checks the kernels and stores the result. Does not run the kernels that failed in the `earlier`
// check. If time runs out, also leaves out what the `earlier` check left out.
CheckReport check(Context& context, const std::optional<CheckedDevice>& device,
                  const std::optional<StoredCheck>& earlier, double timeout_s) {
  constexpr double kLimit_s = 20;
  StoredCheck now;
  if (earlier) now.failed = earlier->failed;
  if (device) now.device = *device;
  try {
    now.report = kernel_check::check_kernels(
        context.backend(), context.exec(),
        {.limit_s = timeout_s > 0 ? std::min(kLimit_s, timeout_s / 2) : kLimit_s,
         .real_sizes = context.device().type == DeviceType::kCuda,
         .failed = now.failed});
  } catch (const kernel_check::KernelFailure& failure) {
    now.failed.push_back(failure.kernel);
    now.finished = false;
    if (device) kernel_check::store_check(now);
    // Logs the failure before it is thrown, because a GPU that hangs may keep this process from
    // ending.
    const std::string text = cat("the check of ", context.device(), " failed in ", failure.what(),
                                 device ? "; start again: the next check leaves this kernel out"
                                        : "; SHALE_KERNEL_CHECK=off starts without a check");
    log_error(text);
    throw UnavailableError(text);
  }
  log_info("checked the kernels of ", context.device(), " in ", now.report.cases, " cases",
           now.report.not_run > 0 ? cat(", without time for ", now.report.not_run, " other cases")
                                  : std::string());
  if (earlier && now.report.not_run > 0) {
    // The earlier check may have run cases for which this one had no time.
    auto& left_out = now.report.left_out;
    for (const LeftOut& one : earlier->report.left_out) {
      const auto same = std::ranges::find(left_out, one.kernel, &LeftOut::kernel);
      if (same == left_out.end()) left_out.push_back(one);
    }
  }
  if (device) kernel_check::store_check(now);
  return now.report;
}

// Returns the report of this rank's GPU. It is empty if another rank checks this kind of GPU, or if
// no rank does. Collective.
CheckReport report_of(Context& context, comm::ProcessGroup& group, double timeout_s) {
  const bool wanted = is_wanted(context.device());
  std::optional<CheckedDevice> device;
  std::optional<StoredCheck> stored;
  if (wanted) device = device_of(context.device());
  if (device) stored = kernel_check::load_check(*device);
  const bool known = stored && stored->complete();
  std::string kind;  // empty: this rank has nothing to check
  if (wanted && !known) {
    kind = cat(host_identity(), "\n", device ? device->gpu : to_string(context.device()));
  }
  const std::vector<std::string> kinds = group.all_gather_bytes(kind, kChoiceTag);
  if (known) return stored->report;
  const auto first = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
  if (kind.empty() || first != group.rank()) return {};
  return check(context, device, stored, timeout_s);
}

}  // namespace

std::vector<std::string> choose_kernels(Context& context, comm::ProcessGroup& device_group,
                                        double timeout_s) {
  const Device& device = context.device();
  // With emulated GPUs, SHALE_KERNEL_CHECK must be equal on all ranks, because it decides whether
  // they take part in the exchange below.
  if (device.type == DeviceType::kCpu) return {};
  if (device.type == DeviceType::kEmu && !is_wanted(device)) return {};
  comm::ProcessGroup& group = device_group.host();
  const CheckReport report = report_of(context, group, timeout_s);
  Json mine = Json::array();
  for (const auto& one : report.left_out) {
    mine.push_back(Json::array({one.kernel, one.reason}));
  }
  std::map<std::string, std::string> reasons;
  for (const std::string& text : group.all_gather_bytes(mine.dump(), kChoiceTag)) {
    const Json list = Json::parse(text, {}, kChoiceTag);
    for (const Json& one : list) reasons.emplace(one[0].text(), one[1].text());
  }
  std::vector<std::string> names;
  for (const auto& [name, reason] : reasons) {
    names.push_back(name);
    if (group.rank() == 0) log_warning("kernels ", name, " are not used on the GPUs: ", reason);
  }
  kernel_check::leave_out(device, names);
  return names;
}

void use_stored_check(const Device& device) {
  if (!is_wanted(device)) return;
  const std::optional<CheckedDevice> checked = device_of(device);
  const auto stored = checked ? kernel_check::load_check(*checked) : std::nullopt;
  std::vector<std::string> names;
  if (stored) {
    for (const auto& one : stored->report.left_out) names.push_back(one.kernel);
  }
  kernel_check::leave_out(device, names);
}

}  // namespace shale::models
