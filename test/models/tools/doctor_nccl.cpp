#include "shale/models/tools/doctor.h"
#include "shale/test/support/catch.h"

namespace shale::models::doctor {

TEST_CASE("an NCCL before 2.26.2 is a warning that names both versions") {
  const Finding old = examine_nccl(22601);
  CHECK(old.state == State::kWarning);
  CHECK(old.value == "2.26.1, expected 2.26.2 or later");
  CHECK(test::contains(old.fix, "install libnccl2 2.26.2 or later"));
  const Finding oldest = examine_nccl(22602);
  CHECK(oldest.state == State::kOk);
  CHECK(oldest.value == "2.26.2");
  CHECK(oldest.fix.empty());
  CHECK(examine_nccl(23001).state == State::kOk);
}

}  // namespace shale::models::doctor
