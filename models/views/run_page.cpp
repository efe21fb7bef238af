#include "shale/models/views/run_page.h"

#include <array>
#include <cstdio>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/training/report/utc_time.h"
#include "shale/models/views/page_text.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

// Formats a value with eight digits, which are more than a chart shows.
std::string digits(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.8g", value);
  return buffer.data();
}

template <typename Number>
std::string list_of(const Column& column, Number number) {
  std::string list = "[";
  for (const Column::Point& point : column.points()) {
    list += cat(list.size() > 1 ? "," : "", number(point));
  }
  return list + "]";
}

std::string json_of(const Column& column) {
  using Point = Column::Point;
  double sum = 0;
  bool is_merged = false;
  for (const Point& point : column.points()) {
    sum += point.sum;
    is_merged = is_merged || point.count > 1;
  }
  std::string json = cat(
      "{\"newest\":", column.newest() ? digits(*column.newest()) : "null", ",\"sum\":", digits(sum),
      ",\"steps\":", list_of(column, [](const Point& point) { return std::to_string(point.last); }),
      ",\"values\":", list_of(column, [](const Point& point) { return digits(point.mean()); }));
  if (is_merged) {
    json += cat(",\"least\":", list_of(column, [](const Point& p) { return digits(p.least); }),
                ",\"most\":", list_of(column, [](const Point& p) { return digits(p.most); }));
  }
  return json + "}";
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = i; j < i + 3; ++j) {
      bits = bits << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
    }
  }
  return text;
}

// Returns the pictures of a run with their PNG data. A picture that is missing or too large has no
// data.
Json pictures_of(const RunData& run) {
  constexpr size_t kMostBytes = 1 << 20;
  Json::Array pictures;
  for (const std::string& path : run.pictures) {
    std::string data;
    try {
      const MappedFile file(path);
      if (file.text().size() <= kMostBytes) data = base64(file.text());
      file.check();
    } catch (const Error&) {
      data.clear();  // the run has just replaced the file
    }
    pictures.push_back({{"name", std::filesystem::path(path).filename().string()}, {"png", data}});
  }
  return pictures;
}

Json json_of(const RunLines& lines) {
  return {{"newest", lines.newest}, {"left_out", lines.left_out}, {"unreadable", lines.unreadable}};
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json about(const RunData& run) {
  return {{"name", run.name},
          {"item", run.item()},
          {"state", run.state},
          {"silent_s", run.silent_s},
          {"steps_wanted", or_null(run.steps_wanted())},
          {"seconds_left", or_null(run.seconds_left())},
          {"status", run.status},
          {"options", run.options},
          {"samples", json_of(run.samples)},
          {"starts", json_of(run.starts)},
          {"warnings", json_of(run.warnings)},
          {"checkpoints", run.checkpoints},
          {"pictures", pictures_of(run)}};
}

}  // namespace

std::optional<int64_t> first_difference(const RunData& a, const RunData& b) {
  auto other = b.loss_bits.begin();
  for (const auto& [step, bits] : a.loss_bits) {
    while (other != b.loss_bits.end() && other->first < step) ++other;
    if (other == b.loss_bits.end()) break;
    if (other->first == step && other->second != bits) return step;
  }
  return std::nullopt;
}

std::string run_feed(std::span<const RunData> runs) {
  std::string list;
  for (const RunData& run : runs) {
    std::string columns;
    for (const auto& [key, column] : run.columns) {
      columns += cat(columns.empty() ? "" : ",", json_quote(key), ":", json_of(column));
    }
    const auto differs_at = first_difference(runs.front(), run);
    list += cat(list.empty() ? "" : ",", "{\"about\":", about(run).dump(),
                ",\"differs_at\":", differs_at ? std::to_string(*differs_at) : "null",
                ",\"columns\":{", columns, "}}");
  }
  return cat("{\"version\":1,\"time\":", json_quote(utc_now()), ",\"runs\":[", list, "]}");
}

std::string run_page(std::string_view feed) {
  std::string html(kPageStart);
  for (const char c : feed) {
    // Writes "<" as an escape sequence of JSON strings, so that no text of a run can end the HTML
    // element.
    c == '<' ? html += "\\u003c" : html += c;
  }
  return html += kPageEnd;
}

}  // namespace shale::models
