#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json_limits.h"
#include "runtime/io/metrics.h"

namespace shale {
namespace {

using nlohmann::json;

// A million steps are some 250 MB; more than this is not a file of ours.
constexpr int64_t kMaxFileBytes = int64_t{1} << 32;
constexpr JsonLimits kLineLimits = {.max_bytes = 4096, .max_depth = 1};

// One field of a row: complains with the key, the type wanted and what is there.
class RowReader {
 public:
  RowReader(const json& row, std::string where) : row_(row), where_(std::move(where)) {}

  bool has(const char* key) const { return row_.contains(key); }

  int64_t integer(const char* key) const {
    const json& value = at(key);
    if (!value.is_number_integer()) fail(key, "an integer", value);
    return value.get<int64_t>();
  }
  std::optional<int64_t> optional_integer(const char* key) const {
    if (at(key).is_null()) return std::nullopt;
    return integer(key);
  }
  std::optional<double> optional_number(const char* key) const {
    const json& value = at(key);
    if (value.is_null()) return std::nullopt;
    if (!value.is_number()) fail(key, "a number or null", value);
    return value.get<double>();
  }
  float bits(const char* key) const {
    const json& value = at(key);
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    uint32_t bits = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (text.size() != 8 || error != std::errc{} || end != text.data() + text.size()) {
      fail(key, "8 hex digits", value);
    }
    return std::bit_cast<float>(bits);
  }

 private:
  const json& at(const char* key) const {
    const auto it = row_.find(key);
    if (it == row_.end()) throw DataError(cat(where_, ": the key \"", key, "\" is missing"));
    return *it;
  }
  [[noreturn]] void fail(const char* key, std::string_view expected, const json& found) const {
    throw DataError(cat(where_, ": ", key, ": expected ", expected, ", found ", found.dump()));
  }

  const json& row_;
  const std::string where_;
};

MetricsRow row_of(std::string_view line, const std::string& where) {
  check_json(line, kLineLimits, where);
  const json object = json::parse(line);
  if (!object.is_object()) throw DataError(cat(where, ": expected an object, found ", line));
  const RowReader row(object, where);
  if (row.has("val_loss")) {
    const auto loss = row.optional_number("val_loss");
    return EvalMetrics{
        .step = row.integer("step"),
        .val_loss = loss ? static_cast<float>(*loss) : std::numeric_limits<float>::quiet_NaN()};
  }
  return StepMetrics{
      .step = row.integer("step"),
      .loss = row.bits("loss_bits"),
      .grad_norm = row.optional_number("grad_norm"),
      .lr = row.optional_number("lr"),
      .tokens = row.optional_integer("tokens"),
      .tokens_per_s = row.optional_number("tokens_per_s"),
      .step_ms = row.optional_number("step_ms"),
      .comm_exposed_ms = row.optional_number("comm_exposed_ms"),
      .mfu = row.optional_number("mfu"),
      .device_peak_bytes = row.optional_integer("device_peak_bytes"),
      .host_peak_bytes = row.optional_integer("host_peak_bytes"),
      .loss_scale = row.has("loss_scale") ? row.optional_number("loss_scale") : std::nullopt,
      .skipped_steps =
          row.has("skipped_steps") ? row.optional_integer("skipped_steps") : std::nullopt};
}

// Calls visit(line, row) for each line that ends; `line` includes its newline.
void for_each_row(const std::filesystem::path& path,
                  const std::function<void(std::string_view, const MetricsRow&)>& visit) {
  const std::string text = read_text_file(path.string(), kMaxFileBytes);
  std::string_view rest = text;
  for (int64_t number = 1;; ++number) {
    const size_t end = rest.find('\n');
    if (end == rest.npos) return;
    visit(rest.substr(0, end + 1), row_of(rest.substr(0, end), cat(path.string(), ":", number)));
    rest.remove_prefix(end + 1);
  }
}

// Every call checked: the rename must not put a file in place that is not whole on disk.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path) : path_(std::move(path)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    check(fd_ >= 0, "be opened for writing");
  }
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
    if (!renamed_) unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      check(written >= 0 || errno == EINTR, "be written");
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
  }

  void replace(const std::filesystem::path& target) {
    check(fsync(fd_) == 0, "be written to disk");
    const int fd = std::exchange(fd_, -1);
    check(close(fd) == 0, "be closed");
    check(rename(path_.c_str(), target.c_str()) == 0, "be renamed");
    renamed_ = true;
    sync_folder(target);
  }

 private:
  void check(bool ok, std::string_view what) const {
    if (!ok) throw DiskError(cat(path_.string(), ": cannot ", what, ": ", std::strerror(errno)));
  }
  // The name itself is on disk only after the folder is.
  void sync_folder(const std::filesystem::path& target) {
    const auto folder = target.has_parent_path() ? target.parent_path() : ".";
    fd_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(fd_ >= 0 && fsync(fd_) == 0, "have its folder written to disk");
  }

  const std::filesystem::path path_;
  int fd_ = -1;
  bool renamed_ = false;
};

}  // namespace

std::vector<MetricsRow> read_metrics(const std::filesystem::path& path) {
  std::vector<MetricsRow> rows;
  for_each_row(path, [&rows](std::string_view, const MetricsRow& row) { rows.push_back(row); });
  return rows;
}

int64_t drop_metrics_after(const std::filesystem::path& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return 0;
  std::string kept;
  int64_t dropped = 0;
  for_each_row(path, [&](std::string_view line, const MetricsRow& row) {
    const int64_t step = std::visit([](const auto& metrics) { return metrics.step; }, row);
    if (step <= last_step) {
      kept += line;
    } else {
      ++dropped;
    }
  });
  NewFile file(path.string() + ".new");
  file.write(kept);
  file.replace(path);
  return dropped;
}

}  // namespace shale
