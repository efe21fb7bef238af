#include "shale/runtime/kernel_check/cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/text_file.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::kernel_check {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr int64_t kMostBytes = 1 << 20;

std::string prefix() {
  return cat("kernels-", host_name(), "-");
}

std::string file_of(const CheckedDevice& device) {
  const std::string folder = check_folder();
  if (folder.empty()) return "";
  const size_t hash =
      std::hash<std::string>()(cat(device.gpu, "\n", device.driver, "\n", device.build));
  return (fs::path(folder) / cat(prefix(), hash, ".json")).string();
}

StoredCheck read(const std::string& file) {
  const Json json = Json::parse(read_text_file(file, kMostBytes), {.max_bytes = kMostBytes}, file);
  if (!json.is_object() || !json.contains("format")) throw DataError(file + ": has no format");
  if (json["format"].integer() != kFormat) {
    throw DataError(cat(file, ": format ", json["format"].integer(), ", expected ", kFormat));
  }
  StoredCheck stored{.file = file};
  stored.device = {
      .gpu = json["gpu"].text(), .driver = json["driver"].text(), .build = json["build"].text()};
  stored.report.cases = json["cases"].integer(0);
  stored.report.not_run = json["not_run"].integer(0);
  stored.report.seconds = json["seconds"].real();
  stored.finished = json["finished"].boolean();
  for (const Json& one : json["left_out"]) {
    stored.report.left_out.push_back({one["kernel"].text(), one["reason"].text()});
  }
  for (const Json& one : json["failed"]) {
    stored.failed.push_back({one["slot"].text(), one["without"].get<unsigned>()});
  }
  return stored;
}

}  // namespace

std::string check_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "shale";
  }
  const fs::path home = variable("HOME");
  return home.is_absolute() ? (home / ".cache" / "shale").string() : "";
}

std::optional<StoredCheck> load_check(const CheckedDevice& device) {
  const std::string file = file_of(device);
  if (std::error_code error; file.empty() || !fs::exists(file, error)) return {};
  try {
    StoredCheck stored = read(file);
    if (stored.device == device) return stored;
    throw DataError(cat(file, ": a check of ", stored.device.gpu, ", expected ", device.gpu));
  } catch (const Error& error) {
    log_warning("the GPU kernels are checked again: ", error.what());
    return {};
  }
}

void store_check(const StoredCheck& check) {
  const std::string file = file_of(check.device);
  Json left_out = Json::array(), failed = Json::array();
  for (const LeftOut& one : check.report.left_out) {
    left_out.push_back({{"kernel", one.kernel}, {"reason", one.reason}});
  }
  for (const FailedKernel& one : check.failed) {
    failed.push_back({{"slot", one.slot}, {"without", one.out}});
  }
  const Json json = {{"format", kFormat},
                     {"gpu", check.device.gpu},
                     {"driver", check.device.driver},
                     {"build", check.device.build},
                     {"finished", check.finished},
                     {"cases", check.report.cases},
                     {"not_run", check.report.not_run},
                     {"seconds", check.report.seconds},
                     {"left_out", std::move(left_out)},
                     {"failed", std::move(failed)}};
  try {
    if (file.empty()) throw MissingInputError("neither XDG_CACHE_HOME nor HOME is a folder");
    std::error_code error;
    // if it fails, the next line reports it
    fs::create_directories(fs::path(file).parent_path(), error);
    write_file_atomically(file, json.dump(2) + "\n");
  } catch (const Error& error) {
    log_warning("the GPU kernels will be checked again at the next start: ", error.what());
  }
}

std::vector<StoredCheck> stored_checks() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(check_folder(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix()) && name.ends_with(".json")) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<StoredCheck> stored;
  for (const std::string& file : files) {
    try {
      stored.push_back(read(file));
    } catch (const Error& damaged) {
      log_warning("ignored: ", damaged.what());
    }
  }
  return stored;
}

}  // namespace shale::kernel_check
