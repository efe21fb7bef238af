#include "shale/models/tools/plan_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale::models {
namespace {

constexpr size_t kNameWidth = 24;
constexpr size_t kExplained = 25;  // number of rows that --explain prints

std::string header() {
  std::string line(kNameWidth, ' ');
  for (int tag = 0; tag < kMemoryTags; ++tag) {
    line += cat(" ", padded(memory_tag_name(MemoryTag(tag)), kCellWidth));
  }
  return cat(line, " ", padded("sum", kCellWidth), "\n");
}

std::string row(std::string_view name, const std::array<int64_t, kMemoryTags>& by_tag) {
  std::string line(name);
  line.resize(std::max(kNameWidth, line.size()), ' ');
  int64_t sum = 0;
  for (const int64_t bytes : by_tag) {
    line += cat(" ", padded(bytes_text(bytes), kCellWidth));
    sum += bytes;
  }
  return cat(line, " ", padded(bytes_text(sum), kCellWidth), "\n");
}

// Returns the name of the unit that contains a module of the model; "outside units" if there is
// none.
std::string unit_of(const MemoryLedger::Share& share, const std::vector<Module*>& units) {
  const bool is_flat = share.tag == MemoryTag::kParameter || share.tag == MemoryTag::kGradient ||
                       share.tag == MemoryTag::kOptimizer;
  const std::string name = (is_flat ? share.what : share.place) + ".";
  for (const Module* unit : units) {
    const std::string prefix = unit->full_name();
    if (name.starts_with(prefix + ".") || name.starts_with(prefix + " ")) return prefix;
  }
  return "outside units";
}

// Returns a table of the memory in use at the peak. Rows are units in the model's order, columns
// are tags.
std::string unit_table(const PlannedRank& rank, const std::vector<Module*>& units) {
  std::map<std::string, std::array<int64_t, kMemoryTags>> by_unit;
  for (const MemoryLedger::Share& share : rank.at_peak) {
    by_unit[unit_of(share, units)][static_cast<size_t>(share.tag)] += share.bytes;
  }
  std::string text = header();
  for (const Module* unit : units) {
    const auto found = by_unit.find(unit->full_name());
    if (found != by_unit.end()) text += row(found->first, found->second);
  }
  return text + row("outside units", by_unit["outside units"]) +
         row("all", rank.memory.device.by_tag);
}

std::string title(const PlannedRank& rank) {
  const RankMemory& memory = rank.memory;
  std::string text = cat("rank ", memory.rank);
  if (!rank.place.empty()) text += cat(" (", rank.place, ")");
  text += cat(": ", bytes_text(memory.device.allocated), " in use at the peak, ",
              bytes_text(memory.device.reserved), " held");
  if (memory.host) {
    text += cat("; of the host ", bytes_text(memory.host->allocated), " and ",
                bytes_text(memory.host->reserved));
  }
  return text + "\n";
}

std::string explanation(const PlannedRank& rank) {
  std::string text = "in use at the peak, largest first: bytes, blocks, tag, module, caller\n";
  for (size_t i = 0; i < std::min(kExplained, rank.at_peak.size()); ++i) {
    const MemoryLedger::Share& share = rank.at_peak[i];
    text += cat("  ", padded(bytes_text(share.bytes), kCellWidth), " ",
                padded(cat(share.blocks), 6), "  ", memory_tag_name(share.tag), ", ",
                share.place.empty() ? "-" : share.place, ", ", share.what, "\n");
  }
  return text;
}

// Returns the reasons why a step takes longer than its GEMMs: the two longest waits, and memory.
std::string limits_of(const PlannedLayout& layout, int64_t most_bytes) {
  const PlannedStep& step = *layout.step;
  std::vector<std::pair<double, std::string_view>> waits{{step.exposed_data, "data"},
                                                         {step.exposed_model, "layers"},
                                                         {step.bubble, "stages"},
                                                         {step.slowed, "slower kernels"}};
  std::ranges::sort(waits, std::greater());
  std::string text;
  for (const auto& [seconds, name] : {waits[0], waits[1]}) {
    const auto percent = std::lround(100 * seconds / step.seconds);
    if (percent > 0) text += cat(text.empty() ? "" : ", ", name, " ", percent, "%");
  }
  if (most_bytes > 0) {
    text += cat(text.empty() ? "" : ", ", "memory ",
                std::lround(100.0 * double(layout.device.reserved) / double(most_bytes)), "%");
  }
  return text.empty() ? "-" : text;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<double>(bytes));
}

std::string padded(std::string_view text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + std::string(text);
}

std::string describe(const PlannedRank& rank, const std::vector<Module*>& units, bool explains) {
  std::string text = cat(title(rank), unit_table(rank, units));
  if (rank.memory.host) text += row("host", rank.memory.host->by_tag);
  return explains ? text + explanation(rank) : text;
}

std::string describe(const FoundLayouts& found, int64_t most_bytes) {
  std::string text = cat(padded("a step", kCellWidth), "    MFU ",
                         padded("device held", kCellWidth), "  flags; what limits it\n");
  for (const PlannedLayout& layout : found.best) {
    text += cat(padded(cat(format_number(1e3 * layout.step->seconds), " ms"), kCellWidth), " ",
                padded(cat(std::lround(100 * layout.step->mfu()), "%"), 6), " ",
                padded(bytes_text(layout.device.reserved), kCellWidth), "  ", layout.flags, "; ",
                limits_of(layout, most_bytes), "\n");
  }
  text += cat(found.candidates, " layouts: ", found.planned, " planned, ", found.slower,
              " cannot be faster, ", found.too_large, " need more memory, ", found.refused,
              " are refused by the model");
  if (found.left == 0) return text;
  return text + cat(", ", found.left, " were not evaluated; they take at least ",
                    format_number(1e3 * found.least_seconds),
                    " ms (estimate: ", format_number(1e3 * found.likely_seconds),
                    " ms); --search-nodes 0 evaluates all layouts");
}

namespace {

// Returns a bound for the relative error of most planned step times
// (bench/results/planned_runs.md).
double usual_error(const Cluster& cluster) {
  return cluster.is_gpu ? 0.15 : 0.1;
}

// Rounds to three digits. The result has a suffix that parse_items() reads, such as "87.4B".
std::string rounded(double value) {
  std::string suffix;
  for (const char* const next : {"k", "M", "B", "T"}) {
    if (value < 9999.5) break;
    value /= 1000;
    suffix = next;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::array<char, 32> text;
  if (value < 0.9995) {
    std::snprintf(text.data(), text.size(), "%#.3g", value);
  } else {
    std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  }
  return text.data() + suffix;
}

double days_of(const PlannedStep& step, double items) {
  return items / (step.items / step.seconds) / 86400;
}
double price_of(const PlannedStep& step, const RunSize& run, int ranks) {
  return days_of(step, run.items) * 24 * ranks * run.price;
}

}  // namespace

std::string describe(const PlannedStep& step, const RunSize& run, const Cluster& cluster,
                     const SampleUnit& unit, int ranks) {
  const double error = usual_error(cluster), day = 86400 * step.items / step.seconds;
  std::string text =
      cat("  usually between ", rounded((1 - error) * step.seconds), " and ",
          rounded((1 + error) * step.seconds), " s; ", rounded(day), " ", unit.items, " a day\n");
  if (run.items == 0) return text;
  const double days = days_of(step, run.items);
  text += cat("  ", rounded(run.items), " ", unit.items, ": ", rounded(days), " days (",
              rounded((1 - error) * days), " to ", rounded((1 + error) * days), ")");
  if (run.price > 0) {
    text += cat(", ", rounded(price_of(step, run, ranks)), " dollars at ", rounded(run.price),
                " per device hour");
  }
  return text + "\n";
}

std::string cluster_row(const Cluster* cluster, const PlannedStep* step, const PlanFit* fit,
                        const RunSize& run, int ranks) {
  const bool is_title = step == nullptr;
  const auto cell = [](const std::string& text) { return " " + padded(text, kCellWidth); };
  std::string text = is_title ? "cluster" : cluster->device;
  text.resize(kNameWidth, ' ');
  text += cell(is_title ? "fits" : fit->fits ? "yes" : "no");
  text += cell(is_title ? "device held" : bytes_text(fit->bytes));
  text += cell(is_title ? "a step" : rounded(step->seconds) + " s");
  text += cell(is_title ? "MFU" : cat(std::lround(100 * step->mfu()), "%"));
  text += cell(is_title ? "items a day" : rounded(86400 * step->items / step->seconds));
  if (run.items > 0) {
    text += cell(is_title ? "days" : rounded(days_of(*step, run.items)));
    if (run.price > 0 || is_title) {
      text += cell(is_title ? "dollars" : rounded(price_of(*step, run, ranks)));
    }
  }
  return text + "\n";
}

double parse_items(const std::string& text) {
  constexpr std::string_view kSuffixes = "kKmMbBtT";
  const size_t at = text.empty() ? std::string::npos : kSuffixes.find(text.back());
  const std::string_view digits(text.data(), text.size() - (at == std::string::npos ? 0 : 1));
  const auto number = parse_real(digits);
  if (!number || *number <= 0) {
    throw ConfigError(cat("--tokens: expected a number such as 15T, 300B or 2e12, found ", text));
  }
  return *number * (at == std::string::npos ? 1 : std::pow(1000, 1 + double(at / 2)));
}

}  // namespace shale::models
