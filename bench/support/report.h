#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/results.h"

namespace shale::bench {

// Facts that only the measuring script knows.
struct ReportFacts {
  std::string commit;  // short hash of the commit that was built
  std::string mpi;     // name and version of the MPI
};

// Makes one Markdown page from the --json files of bench_kernels, bench_train and
// bench_collectives, and from rows of other programs that the scripts in peers/ measured. If a
// configuration was measured several times, the fastest run counts.
std::string results_page(const std::vector<Json>& documents, const ReportFacts& facts);

}  // namespace shale::bench
