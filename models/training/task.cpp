#include "shale/models/training/task.h"

#include "shale/base/error.h"

namespace shale::models {

std::unique_ptr<Task> Task::twin(const RunConfig& /*run*/) const {
  throw UnavailableError("this task cannot be planned, because it does not implement Task::twin()");
}

int64_t Task::parameters() {
  int64_t count = 0;
  for (const Parameter* parameter : model().parameters()) count += parameter->numel();
  return count;
}

void Task::cut(comm::Parallel& parallel) {
  parallel_ = &parallel;
  for (int rank = 1; rank < parallel.hosted().count(); ++rank) further_.push_back(make_model());
  parallel.cut(models(), plan());
}

std::unique_ptr<Module> Task::make_model() const {
  throw ConfigError(
      "parallel: this task does not implement Task::make_model(), so a process can host only one "
      "rank of --tensor and --context; start as many processes as ranks");
}

std::vector<Module*> Task::models() {
  std::vector<Module*> all = {&model()};
  for (const auto& one : further_) all.push_back(one.get());
  return all;
}

Module& Task::here() {
  const int rank = parallel_ != nullptr ? parallel_->hosted().current() : 0;
  return rank <= 0 ? model() : *further_[static_cast<size_t>(rank - 1)];
}

Tensor Task::own_rows(const Tensor& field) const {
  return parallel_ != nullptr ? parallel_->own_rows(field) : field;
}

Tensor Task::run_pieces(const comm::PieceRange&, const Tensor&, const DeviceBatch&) {
  throw InternalError("task: pipelines need Task::run_pieces(), which this task lacks");
}

Shape Task::boundary(int64_t) const {
  throw InternalError("task: pipelines need Task::boundary(), which this task lacks");
}

}  // namespace shale::models
