#include "shale/models/training/report/memory_report.h"

#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/models/training/report/memory_profile.h"
#include "shale/models/training/report/rank_memory.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {

MemoryReport::MemoryReport(Context& context, std::string profile)
    : context_(context), profile_(std::move(profile)) {
  if (!profile_.empty()) ledger_.emplace(context);
}

MemoryReport::~MemoryReport() = default;

void MemoryReport::watch(Module& model, const std::vector<Module*>& units) {
  if (ledger_) places_.emplace(*ledger_, model, units);
}

void MemoryReport::begin_step(int64_t steps) {
  if (!ledger_) return;
  if (steps == kProfiledSteps) return end_profile();
  places_->leave_all();
  ledger_->mark(cat("step ", steps + 1));
}

void MemoryReport::end_profile() {
  if (!ledger_) return;
  try {
    write_memory_profile(profile_, *ledger_, cat("memory of ", context_.device()));
    log_info("wrote ", profile_);
  } catch (const DiskError& error) {
    log_warning("cannot write the memory profile, training continues: ", error.what());
  }
  places_.reset();
  ledger_.reset();
}

void MemoryReport::write(const std::string& folder, comm::ProcessGroup& group,
                         Context* host) const {
  RankMemory memory{.rank = group.rank(),
                    .threads = context_.exec().threads,
                    .device = MemoryPeak(context_.allocator().stats())};
  if (host != nullptr) memory.host = MemoryPeak(host->allocator().stats());
  const std::vector<std::string> lines = group.gather_bytes(to_json(memory), 0, "memory");
  if (group.rank() != 0) return;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_file_atomically((std::filesystem::path(folder) / kMemoryFile).string(), text);
}

}  // namespace shale::models
