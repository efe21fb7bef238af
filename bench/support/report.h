#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/results.h"

namespace shale::bench {

// What the measuring script knows and the programs do not.
struct ReportFacts {
  std::string commit;  // short hash of what was built
  std::string mpi;     // name and version
};

// One Markdown page of the --json files of bench_kernels, bench_train and bench_collectives, and of
// rows of other programs that peers/ measures. Where one configuration was measured several times,
// the fastest run counts.
std::string results_page(const std::vector<Json>& documents, const ReportFacts& facts);

}  // namespace shale::bench
