#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::test {

// f64 reference for means over replicas with one bit per element and error feedback, computed in
// one process. Blocks of 1024 elements are packed as signs and a mean magnitude (arXiv:2102.02888,
// section 3): first each replica's vector, then the mean of the packed vectors.
class OneBitReference {
 public:
  OneBitReference(size_t replicas, size_t elements)
      : owed_(replicas, std::vector<double>(elements)), owner_owed_(elements) {}

  // vectors[r]: the vector of replica r. Elements whose mask is 0 count as 0.
  std::vector<double> mean(const std::vector<std::vector<double>>& vectors,
                           const std::vector<double>& mask);

 private:
  std::vector<std::vector<double>> owed_;
  std::vector<double> owner_owed_;
};

// Gradients for GivenGradients, of order one. Every seventh element always has gradient 0.
double wave_gradient(size_t replica, int64_t step, size_t parameter, size_t element);

// A model of two parameters with a replica on each rank of a group. An optimizer steps it with
// gradients that the test supplies.
class GivenGradients {
 public:
  struct Model : Module {
    Parameter& weight = declare("weight", {30, 70}, Init::normal(1));
    Parameter& bias = declare("bias", {70}, Init::normal(1), /*decay=*/false);
  };
  // Returns an element of a replica's own gradient: gradient(replica, step, parameter, element).
  using Gradient = std::function<double(size_t, int64_t, size_t, size_t)>;
  using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard> shards)>;

  GivenGradients(comm::ProcessGroup& group, const Make& make, Gradient gradient);

  // Makes a step. The gradient is what the optimizer needs: the mean over replicas, or this rank's
  // own.
  void step(int64_t step, float lr);
  // Returns the present values of the first or second parameter.
  std::vector<double> values(size_t parameter) const;

  static constexpr size_t kParameters = 2;
  size_t replicas() const { return static_cast<size_t>(group_.size()); }

 private:
  comm::ProcessGroup& group_;
  Context context_;
  Model model_;
  Gradient gradient_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

}  // namespace shale::test
