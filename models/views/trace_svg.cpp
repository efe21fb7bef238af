#include "shale/models/views/trace_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

using Slice = TraceRecord::Slice;

constexpr int kLeft = 56, kWidth = 900, kHost = 22, kBetween = 8, kRow = 40;  // sizes in pixels
constexpr double kLeastLabel = 12;  // minimum width of a slice that shows its number, in pixels

constexpr std::array<std::string_view, 5> kExchanges = {"#bcbddc", "#9e9ac8", "#807dba", "#6a51a3",
                                                        "#4a1486"};

// Formats pixels with one decimal, identically on all platforms.
std::string pixels(double value) {
  const auto tenths = static_cast<int64_t>(std::llround(value * 10));
  return cat(tenths / 10, ".", tenths % 10);
}

const std::vector<Slice>& host_of(const TraceRecord& record) {
  const auto host = record.tracks.find("host");
  if (host == record.tracks.end()) {
    throw ConfigError(cat("trace: rank ", record.rank, " has no track \"host\""));
  }
  return host->second;
}

// Returns the number in a slice name such as "step 3"; 0 for other names.
int64_t step_number(std::string_view name) {
  constexpr std::string_view kStep = "step ";
  return name.starts_with(kStep) ? parse_int(name.substr(kStep.size())).value_or(0) : 0;
}

Slice step_of(const TraceRecord& record, int64_t step) {
  std::string there;
  for (const Slice& slice : host_of(record)) {
    const int64_t number = step_number(record.names[slice.name]);
    if (number == 0) continue;
    if (step == 0 || number == step) return slice;
    there += cat(there.empty() ? "" : ", ", number);
  }
  throw ConfigError(cat("trace: rank ", record.rank, " has no step ", step, ", expected one of ",
                        there.empty() ? "those of another trace" : excerpt(there)));
}

class Picture {
 public:
  Picture(int64_t begin, int64_t end, size_t ranks) : begin_(begin) {
    scale_ = kWidth / std::max(1.0, static_cast<double>(end - begin));
    svg_ = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kLeft + kWidth + 8,
               "\" height=\"", static_cast<int64_t>(ranks) * kRow + 24,
               "\" font-family=\"sans-serif\" font-size=\"12\">\n",
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    text(kLeft + kWidth, static_cast<int64_t>(ranks) * kRow + 18, "end",
         cat(pixels(static_cast<double>(end - begin) / 1e6), " ms"));
  }
  // Adds a text. `words` must not contain characters that XML reserves.
  void text(double x, int64_t y, std::string_view anchor, std::string_view words) {
    svg_ += cat("<text x=\"", pixels(x), "\" y=\"", y, "\" text-anchor=\"", anchor, "\">", words,
                "</text>\n");
  }
  void box(const Slice& slice, int64_t y, int height, std::string_view color, int64_t number = 0) {
    const double x = kLeft + static_cast<double>(slice.begin - begin_) * scale_;
    const double width = static_cast<double>(slice.end - slice.begin) * scale_;
    svg_ += cat("<rect x=\"", pixels(x), "\" y=\"", y, "\" width=\"", pixels(width), "\" height=\"",
                height, "\" fill=\"", color, "\"/>\n");
    if (number > 0 && width >= kLeastLabel) text(x + width / 2, y + 15, "middle", cat(number));
  }
  std::string take() { return svg_ + "</svg>\n"; }

 private:
  int64_t begin_;
  double scale_ = 1;
  std::string svg_;
};

bool is_inside(const Slice& slice, const Slice& step) {
  return slice.begin >= step.begin && slice.end <= step.end;
}

void draw_host(const TraceRecord& record, const Slice& step, int64_t y, Picture& picture) {
  const auto each = [&](const auto& draw) {
    for (const Slice& slice : host_of(record)) {
      if (is_inside(slice, step)) draw(slice, record.names[slice.name]);
    }
  };
  each([&](const Slice& slice, const std::string& name) {
    if (name == "prepare" || name == "reduce" || name == "update") {
      picture.box(slice, y, kHost, "#d9d9d9");
    }
  });
  int64_t forwards = 0, backwards = 0;
  each([&](const Slice& slice, const std::string& name) {
    if (name == "forward") picture.box(slice, y, kHost, "#9ecae1", ++forwards);
    if (name == "backward") picture.box(slice, y, kHost, "#fdae6b", ++backwards);
  });
  each([&](const Slice& slice, const std::string& name) {
    if (name == "comm/wait") picture.box(slice, y + kHost / 2, kHost / 2, "#cb181d");
  });
}

void draw_exchanges(const TraceRecord& record, const Slice& step, int64_t y, Picture& picture) {
  size_t group = 0;
  for (const auto& [track, slices] : record.tracks) {
    const bool is_link = track.starts_with("link ");
    if (!is_link && !track.starts_with("collectives: ")) continue;
    const size_t color = is_link ? 0 : std::min(++group, kExchanges.size() - 1);
    for (const Slice& slice : slices) {
      if (is_inside(slice, step)) picture.box(slice, y, kBetween, kExchanges[color]);
    }
  }
}

}  // namespace

std::string trace_svg(std::span<const TraceRecord> ranks, int64_t step) {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (const TraceRecord& record : ranks) {
    const Slice found = step_of(record, step);
    begin = std::min(begin, found.begin), end = std::max(end, found.end);
  }
  Picture picture(begin, end, ranks.size());
  int64_t y = 6;
  for (const TraceRecord& record : ranks) {
    const Slice found = step_of(record, step);
    picture.text(4, y + 16, "start", cat("rank ", record.rank));
    draw_host(record, found, y, picture);
    draw_exchanges(record, found, y + kHost + 2, picture);
    y += kRow;
  }
  return picture.take();
}

}  // namespace shale::models
