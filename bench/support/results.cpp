#include "shale/bench/support/results.h"

#include "shale/runtime/io/atomic_file.h"

namespace shale::bench {

void write_results(const std::string& path, const std::string& program, const Machine& machine,
                   const Json& options, const Json& rows) {
  if (path.empty()) return;
  const Json document = {{"program", program},
                         {"machine", Json::parse(machine_json(machine).text(), {}, "machine")},
                         {"options", options},
                         {"rows", rows}};
  write_file_atomically(path, document.dump(1) + "\n");
}

}  // namespace shale::bench
