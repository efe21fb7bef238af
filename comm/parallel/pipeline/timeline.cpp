#include "shale/comm/parallel/pipeline/timeline.h"

#include <array>
#include <cmath>

#include "shale/base/text.h"

namespace shale::comm {
namespace {

constexpr int kLeft = 56, kRow = 28, kBox = 24, kWidth = 900;  // sizes in pixels

// Colors of each kind of action, for a rank's first and second chunk.
constexpr std::array<std::array<const char*, 2>, 4> kColors = {{{"#9ecae1", "#4292c6"},
                                                                {"#fdae6b", "#e6550d"},
                                                                {"#a1d99b", "#41ab5d"},
                                                                {"#fdd0a2", "#f16913"}}};

// Prints a number of pixels with one decimal, so that the text is the same on every machine.
std::string pixels(double value) {
  const auto tenths = static_cast<int64_t>(std::llround(value * 10));
  return cat(tenths / 10, ".", tenths % 10);
}

}  // namespace

std::string timeline_svg(const Simulation& simulation) {
  const double scale = kWidth / simulation.makespan;
  const auto height = static_cast<int>(simulation.ranks.size()) * kRow + 8;
  std::string svg = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kLeft + kWidth + 8,
                        "\" height=\"", height, "\" font-family=\"sans-serif\" font-size=\"12\">\n",
                        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const int y = static_cast<int>(rank) * kRow + 6;
    svg += cat("<text x=\"4\" y=\"", y + 16, "\">rank ", rank, "</text>\n");
    for (const auto& [action, begin, end] : simulation.ranks[rank]) {
      const double x = kLeft + begin * scale, width = (end - begin) * scale;
      const auto& colors = kColors.at(static_cast<size_t>(action.kind));
      svg += cat("<rect x=\"", pixels(x), "\" y=\"", y, "\" width=\"", pixels(width),
                 "\" height=\"", kBox, "\" fill=\"", colors.at(action.chunk > 0 ? 1 : 0),
                 "\" stroke=\"white\"/><text x=\"", pixels(x + width / 2), "\" y=\"", y + 16,
                 "\" text-anchor=\"middle\">", action.micro, "</text>\n");
    }
  }
  return svg + "</svg>\n";
}

}  // namespace shale::comm
