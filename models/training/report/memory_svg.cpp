// Picture of a memory profile: stacked areas by tag, over the sequence of allocations and frees.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/text.h"
#include "shale/models/training/report/memory_profile.h"

namespace shale::models {
namespace {

// Dimensions of the drawing.
constexpr double kLeft = 80, kTop = 48, kWidth = 880, kHeight = 360, kLine = 18;
// Number of columns of the plot; each shows the peak of its time range.
constexpr int64_t kColumns = 880;
constexpr size_t kShares = 12;  // number of rows of the table below the plot

// Colours of tags, in their order; distinguishable with colour blindness (Okabe and Ito, 2008).
constexpr std::array<const char*, kMemoryTags> kColors = {
    "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#999999"};
constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px}.axis{stroke:#888;fill:none}"
    ".mark{stroke:#bbb;stroke-dasharray:3 3}.peak{stroke:#222}svg{background:#fff}"
    "@media(prefers-color-scheme:dark){svg{background:#161616}text{fill:#ddd}.peak{stroke:#eee}}"
    "</style>\n";

using ByTag = std::array<int64_t, kMemoryTags>;

int64_t sum_of(const ByTag& bytes) {
  int64_t sum = 0;
  for (const int64_t one : bytes) sum += one;
  return sum;
}

// Returns, for each column of the plot, the memory in use at the peak of the column's time range.
std::vector<ByTag> columns_of(const MemoryLedger& ledger) {
  const int64_t times = std::max<int64_t>(ledger.times(), 1);
  std::vector<std::pair<int64_t, std::pair<size_t, int64_t>>> changes;
  for (const MemoryLedger::Allocation& one : ledger.allocations()) {
    const auto tag = static_cast<size_t>(one.tag);
    changes.push_back({one.begin, {tag, one.bytes}});
    if (one.end < ledger.times()) changes.push_back({one.end, {tag, -one.bytes}});
  }
  std::sort(changes.begin(), changes.end());
  std::vector<ByTag> columns(static_cast<size_t>(std::min(kColumns, times)));
  ByTag now{};
  for (const auto& [time, change] : changes) {
    now[change.first] += change.second;
    ByTag& column = columns[static_cast<size_t>(time * std::ssize(columns) / times)];
    if (sum_of(now) > sum_of(column)) column = now;
  }
  return columns;
}

std::string number(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", value);
  return buffer.data();
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, std::string_view text, std::string_view attributes = {}) {
  return cat("<text x=\"", number(x), "\" y=\"", number(y), "\" ", attributes, ">", escaped(text),
             "</text>\n");
}

std::string line(std::string_view kind, double x1, double y1, double x2, double y2) {
  return cat("<path class=\"", kind, "\" d=\"M", number(x1), " ", number(y1), "L", number(x2), " ",
             number(y2), "\"/>\n");
}

// Maps times to x coordinates, and bytes to y coordinates.
struct Plane {
  double times = 1, bytes = 1;
  double x(double time) const { return kLeft + time / times * kWidth; }
  double y(double value) const { return kTop + kHeight - value / bytes * kHeight; }
};

std::string areas(const std::vector<ByTag>& columns, const Plane& plane) {
  std::vector<double> below(columns.size());
  const auto at = [&](size_t i) {
    return kLeft + kWidth * static_cast<double>(i) / static_cast<double>(columns.size());
  };
  std::string svg;
  for (size_t tag = 0; tag < kMemoryTags; ++tag) {
    std::string upper, lower;
    bool is_there = false;
    for (size_t i = 0; i < columns.size(); ++i) {
      const double top = below[i] + static_cast<double>(columns[i][tag]);
      is_there = is_there || columns[i][tag] > 0;
      upper +=
          cat(i == 0 ? "M" : "L", number(at(i)), " ", number(plane.y(top)), "H", number(at(i + 1)));
      lower =
          cat("L", number(at(i + 1)), " ", number(plane.y(below[i])), "H", number(at(i)), lower);
      below[i] = top;
    }
    if (!is_there) continue;
    svg += cat("<path fill=\"", kColors[tag], "\" d=\"", upper, lower, "Z\"/>\n");
  }
  return svg;
}

std::string axes(const MemoryLedger& ledger, const Plane& plane) {
  std::string svg = line("axis", kLeft, kTop + kHeight, kLeft + kWidth, kTop + kHeight);
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double bytes = plane.bytes * quarter / 4;
    svg += line("mark", kLeft, plane.y(bytes), kLeft + kWidth, plane.y(bytes));
    svg += text_at(kLeft - 6, plane.y(bytes) + 4, format_bytes(std::round(bytes)),
                   "text-anchor=\"end\"");
  }
  for (const auto& [time, name] : ledger.marks()) {
    const double x = plane.x(static_cast<double>(time));
    svg += line("mark", x, kTop, x, kTop + kHeight) + text_at(x + 3, kTop + kHeight + 14, name);
  }
  const double peak = plane.x(static_cast<double>(ledger.peak_time()));
  return svg +
         line("peak", peak, kTop - 4, peak, plane.y(static_cast<double>(ledger.peak_bytes())));
}

std::string legend(const std::vector<ByTag>& columns) {
  std::string svg;
  double x = kLeft;
  for (size_t tag = 0; tag < kMemoryTags; ++tag) {
    const auto has_tag = [&](const ByTag& column) { return column[tag] > 0; };
    if (std::none_of(columns.begin(), columns.end(), has_tag)) continue;
    svg += cat("<rect x=\"", number(x), "\" y=\"", number(kTop - 16),
               "\" width=\"10\" height=\"10\" fill=\"", kColors[tag], "\"/>\n");
    const std::string_view name = memory_tag_name(MemoryTag(tag));
    svg += text_at(x + 14, kTop - 7, name);
    x += 36 + 7 * static_cast<double>(name.size());
  }
  return svg;
}

std::string table(const std::vector<MemoryLedger::Share>& shares, double y) {
  std::string svg = text_at(kLeft, y, "In use at the peak, the largest:");
  for (size_t i = 0; i < std::min(kShares, shares.size()); ++i) {
    const MemoryLedger::Share& share = shares[i];
    y += kLine;
    svg += text_at(kLeft + 90, y, format_bytes(static_cast<double>(share.bytes)),
                   "text-anchor=\"end\"");
    svg += text_at(kLeft + 100, y, cat(share.blocks, share.blocks == 1 ? " block" : " blocks"));
    svg += text_at(kLeft + 180, y, memory_tag_name(share.tag));
    svg += text_at(kLeft + 290, y, share.place.empty() ? "outside modules" : share.place);
    svg += text_at(kLeft + 520, y, share.what);
  }
  return svg;
}

}  // namespace

std::string memory_svg(const MemoryLedger& ledger, const std::string& title) {
  const std::vector<ByTag> columns = columns_of(ledger);
  const std::vector<MemoryLedger::Share> shares = ledger.at_peak();
  const Plane plane{.times = static_cast<double>(std::max<int64_t>(ledger.times(), 1)),
                    .bytes = std::max(1., static_cast<double>(ledger.peak_bytes()))};
  const double rows = static_cast<double>(std::min(kShares, shares.size()) + 1);
  const double below = kTop + kHeight + 48, height = below + kLine * rows;
  const std::string peak = format_bytes(static_cast<double>(ledger.peak_bytes()));
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ",
             number(kLeft + kWidth + 20), " ", number(height), "\" role=\"img\">\n<title>",
             escaped(title), ": memory in use, at most ", peak, "</title>\n", kStyle,
             text_at(kLeft, 20, cat(title, ": ", peak, " at the peak"), "class=\"title\""),
             legend(columns), areas(columns, plane), axes(ledger, plane), table(shares, below),
             "</svg>\n");
}

}  // namespace shale::models
