#include <algorithm>

#include "shale/base/text.h"
#include "shale/bench/support/report_rows.h"
#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

// Results of another library's cases. A case may have been tried several times.
struct Rival {
  std::string impl, version;
  std::map<std::string, double> times_us;     // microseconds by case
  std::map<std::string, std::string> errors;  // errors by case, if no try succeeded
};

// Returns the other libraries in the order of the rows, which is by importance.
std::vector<Rival> rivals_of(const std::vector<Json>& documents) {
  std::vector<Rival> rivals;
  for (const Json& document : documents) {
    if (!is_program(document, "peer_kernels")) continue;
    for (const Json& row : document["rows"]) {
      const std::string impl = word(row, "impl"), name = word(row, "name");
      auto rival = std::find_if(rivals.begin(), rivals.end(),
                                [&](const Rival& one) { return one.impl == impl; });
      if (rival == rivals.end()) rival = rivals.insert(rival, {.impl = impl});
      if (row.contains("version")) rival->version = word(row, "version");
      if (const double us = number(row, "time_us"); us > 0) {
        rival->times_us[name] = us;
      } else {
        rival->errors[name] = word(row, "error");
      }
    }
  }
  for (Rival& rival : rivals) {
    std::erase_if(rival.errors,
                  [&](const auto& entry) { return rival.times_us.contains(entry.first); });
  }
  return rivals;
}

}  // namespace

std::string rivals_section(const std::vector<Json>& documents) {
  const std::map<std::string, Json> fastest = fastest_rivals(documents);
  Table table({"rival", "version", "cases measured", "fastest rival in", "failed", "first error"});
  for (const Rival& rival : rivals_of(documents)) {
    const auto wins = std::count_if(fastest.begin(), fastest.end(), [&](const auto& entry) {
      return word(entry.second, "impl") == rival.impl;
    });
    table.add({rival.impl, rival.version, cat(rival.times_us.size()), cat(wins),
               cat(rival.errors.size()),
               rival.errors.empty()
                   ? ""
                   : cat(rival.errors.begin()->first, ": ", rival.errors.begin()->second)});
  }
  return table.empty() ? "" : "\n## Rivals\n\n" + table.markdown();
}

}  // namespace shale::bench
