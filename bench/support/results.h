#pragma once

#include <string>

#include "shale/base/json.h"
#include "shale/bench/support/machine.h"

namespace shale::bench {

// Writes an object {"program", "machine", "options", "rows"} to the file `path`. Does nothing if
// `path` is empty.
void write_results(const std::string& path, const std::string& program, const Machine& machine,
                   const Json& options, const Json& rows);

}  // namespace shale::bench
