#include "shale/models/views/trace_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

using Slice = TraceRecord::Slice;
using Times = std::map<std::string, double>;  // nanoseconds; key: name

constexpr std::string_view kWait = "comm/wait";
// Parts of a step, in the order of the report.
constexpr std::array<std::string_view, 8> kParts = {
    "data", "prepare", "forward", "backward", "reduce", "update", "checkpoint", "validation"};
constexpr size_t kShown = 6;  // maximum number of entries of a list

bool is_part(std::string_view name) {
  return std::find(kParts.begin(), kParts.end(), name) != kParts.end();
}
bool is_step(std::string_view name) {
  return name.starts_with("step ");
}

// Replaces numbers in a name, so that "h.3 parameters" and "h.4 parameters" become equal.
std::string without_numbers(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) {
      result += c;
    } else if (!result.ends_with('*')) {
      result += '*';
    }
  }
  return result;
}

struct Sums {
  int64_t first_step = 0, last_step = 0;
  int64_t steps = 0;  // number of steps per rank
  double step = 0;    // total nanoseconds of the steps
  Times parts;        // nanoseconds of each part of a step, without waits
  Times kernels;
  Times waits_in;   // nanoseconds of waits, by the part of a step that waited
  Times waits_for;  // nanoseconds of waits, by the collective in flight
  double waited = 0;
  double in_flight = 0;    // nanoseconds with at least one collective in flight
  bool on_device = false;  // times were measured on the device
};

// Returns the collectives and messages of a rank, sorted by begin.
std::vector<std::pair<Slice, std::string>> collectives_of(const TraceRecord& record) {
  std::vector<std::pair<Slice, std::string>> all;
  for (const auto& [track, slices] : record.tracks) {
    if (!track.starts_with("collectives: ") && !track.starts_with("link ")) continue;
    for (const Slice& slice : slices) {
      std::string name = record.names[slice.name];
      if (slice.about >= 0) {
        for (const auto& [key, value] : record.about[static_cast<size_t>(slice.about)].texts) {
          if (key == "for" && !value.empty()) name += cat(" for ", without_numbers(value));
        }
      }
      all.emplace_back(slice, name);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  return all;
}

// Walks through the nested slices of one rank. If its device is asynchronous, these are the slices
// of the device, because the host runs ahead and its times are not those of the step. Otherwise
// they are the slices of the main thread.
class RankWalk {
 public:
  RankWalk(const TraceRecord& record, Sums& sums)
      : record_(record), sums_(sums), collectives_(collectives_of(record)) {
    auto track = record.tracks.find("device");
    sums_.on_device = track != record.tracks.end();
    if (!sums_.on_device) track = record.tracks.find("host");
    if (track == record.tracks.end()) return;
    for (const Slice& slice : track->second) enter(slice);
    leave_until(std::numeric_limits<int64_t>::max());
    add_flights();
  }

 private:
  struct Open {
    Slice slice;
    std::string_view name;
    std::string_view part;
    double inside = 0;  // nanoseconds of the slices nested in this one
    bool in_step = false;
  };

  void enter(const Slice& slice) {
    leave_until(slice.begin);
    const std::string_view name = record_.names[slice.name];
    Open open{.slice = slice, .name = name};
    if (!open_.empty()) {
      open.part = open_.back().part;
      open.in_step = open_.back().in_step;
    }
    if (is_step(name)) open.in_step = true;
    if (is_part(name)) open.part = name;
    open_.push_back(open);
  }

  void leave_until(int64_t time) {
    while (!open_.empty() && open_.back().slice.end <= time) {
      const Open open = open_.back();
      open_.pop_back();
      const auto whole = static_cast<double>(open.slice.end - open.slice.begin);
      if (!open_.empty()) open_.back().inside += whole;
      if (is_step(open.name)) {
        add_step(open.name, whole);
      } else if (open.in_step) {
        add(open, whole);
      }
    }
  }

  void add_step(std::string_view name, double whole) {
    const int64_t number = parse_int(name.substr(name.find(' ') + 1)).value_or(0);
    sums_.first_step = sums_.steps == 0 ? number : std::min(sums_.first_step, number);
    sums_.last_step = std::max(sums_.last_step, number);
    ++sums_.steps;
    sums_.step += whole;
  }

  void add(const Open& open, double whole) {
    const double own = whole - open.inside;
    if (open.name == kWait) {
      sums_.waited += whole;
      sums_.waits_in[std::string(open.part.empty() ? "between parts" : open.part)] += whole;
      attribute(open.slice);
      return;
    }
    if (!open.part.empty()) sums_.parts[std::string(open.part)] += own;
    const bool is_kernel = open.inside == 0 && !is_part(open.name);
    if (is_kernel) sums_.kernels[std::string(open.name)] += own;
  }

  // Attributes a wait to the collectives that were in flight during it.
  void attribute(const Slice& wait) {
    for (const auto& [slice, name] : collectives_) {
      if (slice.begin >= wait.end) break;
      const int64_t shared = std::min(slice.end, wait.end) - std::max(slice.begin, wait.begin);
      if (shared > 0) sums_.waits_for[name] += static_cast<double>(shared);
    }
  }

  void add_flights() {
    int64_t until = 0;
    for (const auto& [slice, name] : collectives_) {
      sums_.in_flight +=
          static_cast<double>(std::max<int64_t>(0, slice.end - std::max(slice.begin, until)));
      until = std::max(until, slice.end);
    }
  }

  const TraceRecord& record_;
  Sums& sums_;
  const std::vector<std::pair<Slice, std::string>> collectives_;
  std::vector<Open> open_;
};

// Which ranks were the last to arrive at collectives, and how long others waited.
struct Lateness {
  int64_t met = 0;                // number of collectives that several ranks joined
  std::map<int, int64_t> last;    // how often each rank was last
  // For each late rank: sum of the mean waits of the other ranks, in ns.
  std::map<int, double> kept_up;
};

Lateness lateness_of(std::span<const TraceRecord> ranks) {
  struct Arrival {
    int rank;
    int64_t time;
  };
  std::map<uint64_t, std::vector<Arrival>> flows;
  for (const TraceRecord& record : ranks) {
    for (const auto& [track, slices] : record.tracks) {
      for (const Slice& slice : slices) {
        if (slice.about < 0 || !track.starts_with("collectives: ")) continue;
        const uint64_t flow = record.about[static_cast<size_t>(slice.about)].flow;
        if (flow != 0) flows[flow].push_back({record.rank, slice.begin});
      }
    }
  }
  Lateness lateness;
  for (const auto& [flow, arrivals] : flows) {
    if (arrivals.size() < 2) continue;
    ++lateness.met;
    const auto last =
        std::max_element(arrivals.begin(), arrivals.end(),
                         [](const Arrival& a, const Arrival& b) { return a.time < b.time; });
    double waited = 0;
    for (const Arrival& arrival : arrivals)
      waited += static_cast<double>(last->time - arrival.time);
    ++lateness.last[last->rank];
    lateness.kept_up[last->rank] += waited / static_cast<double>(arrivals.size() - 1);
  }
  return lateness;
}

std::string milliseconds(double ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g ms", 1e-6 * ns);
  return text.data();
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f%%", 100 * share);
  return text.data();
}

std::vector<std::pair<std::string, double>> largest(const Times& times) {
  std::vector<std::pair<std::string, double>> sorted(times.begin(), times.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (sorted.size() > kShown) sorted.resize(kShown);
  return sorted;
}

std::string row(std::string_view name, double ns, double step) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "  %-26s %6s  %s\n", std::string(name).c_str(),
                percent(ns / step).c_str(), milliseconds(ns).c_str());
  return text.data();
}

// Returns names with percentages of `whole`: "matmul 61.0%, attention_fwd 12.1%".
std::string shares(const Times& times, double whole) {
  std::string text;
  for (const auto& [name, ns] : largest(times)) {
    text += cat(text.empty() ? "" : ", ", excerpt(name), " ", percent(ns / whole));
  }
  return text;
}

std::string where_it_goes(const Sums& sums) {
  const auto of_a_step = static_cast<double>(sums.steps);
  std::string text;
  double rest = sums.step - sums.waited;
  for (const std::string_view part : kParts) {
    const auto it = sums.parts.find(std::string(part));
    if (it == sums.parts.end()) continue;
    rest -= it->second;
    text += row(part, it->second / of_a_step, sums.step / of_a_step);
  }
  text += row("waiting for other ranks", sums.waited / of_a_step, sums.step / of_a_step);
  return text + row("the rest", std::max(0.0, rest) / of_a_step, sums.step / of_a_step);
}

std::string communication(const Sums& sums) {
  if (sums.in_flight == 0) return {};
  const auto of_a_step = static_cast<double>(sums.steps);
  std::string text = cat("Collectives are under way for ", milliseconds(sums.in_flight / of_a_step),
                         " of a step; ", milliseconds(sums.waited / of_a_step), " (",
                         percent(sums.waited / sums.step),
                         " of the step) are exposed, while nothing is computed");
  if (sums.waited == 0) return text + ".\n";
  text += cat(":\n  in ", shares(sums.waits_in, sums.waited), ";\n");
  return text + cat("  while under way: ", shares(sums.waits_for, sums.waited), ".\n");
}

std::string who_is_late(std::span<const TraceRecord> ranks, const Sums& sums) {
  constexpr double kWorthAWord = 0.01;  // minimum fraction of a step that is printed
  if (ranks.size() < 2) return {};
  const Lateness lateness = lateness_of(ranks);
  if (lateness.met == 0) return "The trace has no collective that ranks did together.\n";
  const auto worst =
      std::max_element(lateness.kept_up.begin(), lateness.kept_up.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double steps = static_cast<double>(sums.steps) / static_cast<double>(ranks.size());
  const double kept_up = worst->second / steps;
  const double step = sums.step / static_cast<double>(sums.steps);
  const auto record = std::find_if(ranks.begin(), ranks.end(), [&](const TraceRecord& rank) {
    return rank.rank == worst->first;
  });
  return cat(kept_up < kWorthAWord * step ? "No rank is late; the latest, " : "One rank is late: ",
             "rank ", worst->first, " on ", excerpt(record->host),
             kept_up < kWorthAWord * step ? ", is" : ", which is", " the last to join ",
             lateness.last.at(worst->first), " of ", lateness.met,
             " collectives; the other ranks wait ", milliseconds(kept_up), " (",
             percent(kept_up / step), ") of a step for it, exposed or not.\n");
}

}  // namespace

std::string trace_report(std::span<const TraceRecord> ranks) {
  Sums sums;
  std::set<std::string> hosts;
  for (const TraceRecord& record : ranks) {
    RankWalk(record, sums);
    hosts.insert(record.host);
  }
  if (sums.steps == 0) throw DataError("trace: expected at least one complete step, found none");
  const double step = sums.step / static_cast<double>(sums.steps);
  double kernels = 0;
  for (const auto& [name, ns] : sums.kernels) kernels += ns;
  return cat("Steps ", sums.first_step, " to ", sums.last_step, " of ", ranks.size(),
             ranks.size() == 1 ? " rank" : " ranks", " on ", hosts.size(),
             hosts.size() == 1 ? " host" : " hosts", "; a step takes ", milliseconds(step),
             ", mean of all:\n", where_it_goes(sums), "Kernels take ", percent(kernels / sums.step),
             " of a step, as the ", sums.on_device ? "device runs" : "host calls",
             " them; of that ", shares(sums.kernels, kernels), ".\n", communication(sums),
             who_is_late(ranks, sums));
}

}  // namespace shale::models
