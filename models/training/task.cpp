#include "shale/models/training/task.h"

#include "shale/base/error.h"

namespace shale::models {

Tensor Task::run_pieces(std::span<const nn::Piece>, const Tensor&, const DeviceBatch&) {
  throw InternalError("task: its model is no list of pieces");
}

Shape Task::boundary(int64_t) const {
  throw InternalError("task: its model is no list of pieces");
}

int64_t Task::sequence_tokens(int) const {
  throw ConfigError("--context: this task has no sequences that can be cut; want --context 1");
}

comm::TensorPlan Task::tensor_plan() const {
  throw ConfigError("--tensor: this task's model has no plan of how to cut it; want --tensor 1");
}

}  // namespace shale::models
