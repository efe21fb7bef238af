#pragma once

#include <span>
#include <string_view>

namespace shale {

// An option, or one value of an option, that earlier versions had.
struct RemovedOption {
  std::string_view name;     // flag without dashes
  std::string_view value;    // removed value; empty: the whole option was removed
  std::string_view instead;  // what the error message suggests: "use --optimizer 1bit-adam"
  // If the whole option was removed: the JSON value that checkpoints and --print-config files have
  // if a run did not use it. Such values are accepted silently.
  std::string_view unused = {};
  // If the whole option was removed: runs may resume without it (ConfigOption::may_change()).
  bool may_change = false;
};

// All removed options. A commit that removes an option, or a value of one, adds a row. Command
// lines and config files that still have it get an error with `instead`.
std::span<const RemovedOption> removed_options();

// Returns the row of a removed option, or of a removed value of an option. Null if nothing was
// removed.
const RemovedOption* find_removed_option(std::string_view name, std::string_view value = {});

}  // namespace shale
