#include "shale/comm/parallel/pipeline/timeline.h"

#include <fstream>
#include <sstream>

#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"

namespace shale::test {

// If this test fails, replace the picture on that page with the file that the test has written.
TEST_CASE("the timeline of docs/explanation/parallelism.md is that of the simulation") {
  const std::string drawn = comm::timeline_svg(comm::simulate(
      comm::make_schedule(comm::ScheduleKind::k1F1B, /*ranks=*/4, /*chunks=*/1, /*micros=*/8)));
  std::ifstream file(fixture_path("../../docs/images/pipeline_1f1b.svg"));
  std::stringstream stored;
  stored << file.rdbuf();
  if (stored.str() != drawn) std::ofstream("pipeline_1f1b.svg") << drawn;
  CHECK(stored.str() == drawn);
}

}  // namespace shale::test
