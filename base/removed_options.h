#pragma once

#include <span>
#include <string_view>

namespace shale {

// An option, or one value of an option, that programs had in earlier versions.
struct RemovedOption {
  std::string_view name;     // of the flag, without dashes
  std::string_view value;    // the value that was removed; empty: the whole option
  std::string_view instead;  // what messages say to do: "use --optimizer 1bit-adam"
  // Of a whole option: its JSON value in checkpoints, and in files of --print-config, of runs that
  // did not use it. They say nothing then.
  std::string_view unused = {};
  // Of a whole option: a run goes on without it, as after any ConfigOption::may_change().
  bool may_change = false;
};

// All of them. Whoever removes an option, or a value of one, adds a row; command lines and config
// files that still have it are refused with `instead`.
std::span<const RemovedOption> removed_options();

// The row of an option that was removed, or of a value of an option that stayed; null: there is
// none.
const RemovedOption* find_removed_option(std::string_view name, std::string_view value = {});

}  // namespace shale
