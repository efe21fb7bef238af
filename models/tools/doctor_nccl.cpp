// Judgement of NCCL's version, for shale doctor.
#include "shale/base/error.h"
#include "shale/comm/nccl/nccl_version.h"
#include "shale/models/tools/doctor.h"

namespace shale::models::doctor {

Finding examine_nccl(int version) {
  Finding finding{.section = "GPU", .name = "NCCL", .value = comm::nccl_version_text(version)};
  if (version >= comm::kOldestNccl) return finding;
  const std::string oldest = comm::nccl_version_text(comm::kOldestNccl);
  finding.state = State::kWarning;
  finding.value += cat(", expected ", oldest, " or later");
  finding.fix = cat("install libnccl2 ", oldest,
                    " or later, or put its folder into LD_LIBRARY_PATH; else several GPUs need "
                    "--comm mpi, which exchanges data through the host");
  return finding;
}

}  // namespace shale::models::doctor
