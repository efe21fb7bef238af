#include "shale/base/removed_options.h"

#include <array>

namespace shale {

std::span<const RemovedOption> removed_options() {
  static constexpr auto kRows = std::to_array<RemovedOption>({
      {"optimizer", "01-adam", "use --optimizer 1bit-adam"},
      {"optimizer", "1bit-lamb", "use --optimizer 1bit-adam or lamb"},
      {"variance-doubling", "", "use --optimizer 1bit-adam with --freeze-step", "0"},
      {"local-doubling", "", "use --outer-every", "0"},
      {"local-most", "", "use --outer-every", "4"},
      {"tensor-leaves", "", "use --tensor with that number", "0", true},
      {"context-leaves", "", "use --context with that number", "0", true},
      {"print-options", "", "use --help table"},
  });
  return kRows;
}

const RemovedOption* find_removed_option(std::string_view name, std::string_view value) {
  for (const RemovedOption& option : removed_options()) {
    if (option.name == name && option.value == value) return &option;
  }
  return nullptr;
}

}  // namespace shale
