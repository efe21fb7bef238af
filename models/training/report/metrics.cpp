#include "shale/models/training/report/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/io/file.h"

namespace shale {
namespace {

DiskError disk_error(const std::filesystem::path& path, std::string_view what, int error) {
  return DiskError(
      cat(path.string(), ": cannot ", what, ": ", std::strerror(error), " (errno ", error, ")"));
}

// The locale never gets in between, unlike with printf.
template <typename... Format>
std::string number_text(Format... value_and_format) {
  std::array<char, 400> buffer{};  // a double in fixed notation has up to 309 digits
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value_and_format...);
  return {buffer.data(), result.ptr};
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return "null";
  return number_text(value, std::chars_format::general, digits);
}

std::string or_null(const std::optional<int64_t>& value) {
  return value ? number_text(*value) : "null";
}
std::string significant_or_null(const std::optional<double>& value, int digits) {
  return value ? significant(*value, digits) : "null";
}
// For quantities whose size is known: 1234567.8 is easier to read than 1.23457e+06.
std::string fixed_or_null(const std::optional<double>& value, int decimals) {
  if (!value || !std::isfinite(*value)) return "null";
  return number_text(*value, std::chars_format::fixed, decimals);
}

// Bytes to the last one, shares to six digits.
std::string count_or_share(double value) {
  const bool is_count = std::abs(value) < 1e15 && value == std::floor(value);
  return is_count ? number_text(static_cast<int64_t>(value)) : significant(value, 6);
}

std::string bits_text(float value) {
  std::string digits = number_text(std::bit_cast<uint32_t>(value), 16);
  return cat("\"", std::string(8 - digits.size(), '0'), digits, "\"");
}

std::string line_of(const StepMetrics& m) {
  return cat("{\"step\": ", m.step, ", \"loss\": ", significant(m.loss, 9),
             ", \"loss_bits\": ", bits_text(m.loss),
             ", \"grad_norm\": ", significant_or_null(m.grad_norm, 9),
             ", \"lr\": ", significant_or_null(m.lr, 9), ", \"", m.item, "\": ", or_null(m.items),
             ", \"", m.item, "_per_s\": ", fixed_or_null(m.items_per_s, 1),
             ", \"step_ms\": ", fixed_or_null(m.step_ms, 3),
             ", \"comm_exposed_ms\": ", fixed_or_null(m.comm_exposed_ms, 3),
             ", \"mfu\": ", significant_or_null(m.mfu, 6),
             ", \"device_peak_bytes\": ", or_null(m.device_peak_bytes),
             ", \"host_peak_bytes\": ", or_null(m.host_peak_bytes),
             m.loss_scale ? cat(", \"loss_scale\": ", significant(*m.loss_scale, 9)) : "",
             m.skipped_steps ? cat(", \"skipped_steps\": ", *m.skipped_steps) : "", "}\n");
}

std::string line_of(const EvalMetrics& m) {
  return cat("{\"step\": ", m.step, ", \"val_loss\": ", significant(m.val_loss, 9), ", \"val_",
             m.item, "\": ", or_null(m.items), ", \"val_ms\": ", fixed_or_null(m.ms, 3), "}\n");
}

std::string line_of(const RanksMetrics& m) {
  std::string line = cat("{\"step\": ", m.step, ", \"ranks\": ", m.ranks);
  for (const auto& [name, spread] : m.figures) {
    const auto add = [&line, &name = name](std::string_view what, const std::string& value) {
      line += cat(", \"", name, "_", what, "\": ", value);
    };
    const auto number = [&](double Spread::*field) {
      return spread ? count_or_share(*spread.*field) : "null";
    };
    const auto rank = [&](int Spread::*field) {
      return spread ? number_text(*spread.*field) : "null";
    };
    add("min", number(&Spread::least));
    add("min_rank", rank(&Spread::least_rank));
    add("median", number(&Spread::median));
    add("max", number(&Spread::most));
    add("max_rank", rank(&Spread::most_rank));
  }
  return line + "}\n";
}

}  // namespace

std::string to_json_line(const MetricsRow& row) {
  return std::visit([](const auto& metrics) { return line_of(metrics); }, row);
}

MetricsWriter::MetricsWriter(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw disk_error(path_, "be opened for writing", errno);
  Folder::open(path_.parent_path().string()).sync();
}

MetricsWriter::~MetricsWriter() {
  warn_if_removed();
  // Some network file systems report a full disk only here.
  if (close(fd_) != 0) log_error(path_.string(), ": cannot be closed: ", std::strerror(errno));
}

void MetricsWriter::write(const MetricsRow& row) {
  const std::string line = to_json_line(row);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) throw disk_error(path_, "be written", errno);
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
}

void MetricsWriter::warn_if_removed() {
  struct stat info {};
  if (warned_ || ::fstat(fd_, &info) != 0 || info.st_nlink > 0) return;
  warned_ = true;
  log_warning(path_.string(), ": somebody has removed it; its rows are lost");
}

void MetricsWriter::sync() {
  warn_if_removed();
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) throw disk_error(path_, "be synced", errno);
  }
}

}  // namespace shale
