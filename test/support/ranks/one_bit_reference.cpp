#include "shale/test/support/ranks/one_bit_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shale/comm/sums/compressed_sum.h"
#include "shale/kernels/one_bit.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

// Returns scale * sign(u + owed), block by block, and stores the compression error in `owed`.
std::vector<double> packed(std::vector<double> u, std::vector<double>& owed,
                           const std::vector<double>& mask) {
  constexpr auto kBlock = static_cast<size_t>(kernels::kSignBlock);
  for (size_t begin = 0; begin < u.size(); begin += kBlock) {
    const size_t end = std::min(u.size(), begin + kBlock);
    double magnitude = 0, live = 0;
    for (size_t i = begin; i < end; ++i) {
      u[i] = mask[i] != 0 ? u[i] + owed[i] : 0;
      magnitude += std::abs(u[i]);
      live += mask[i] != 0 ? 1 : 0;
    }
    const double scale = live > 0 ? magnitude / live : 0;
    for (size_t i = begin; i < end; ++i) {
      const double sent = mask[i] == 0 ? 0 : u[i] >= 0 ? scale : -scale;
      owed[i] = u[i] - sent;
      u[i] = sent;
    }
  }
  return u;
}

}  // namespace

std::vector<double> OneBitReference::mean(const std::vector<std::vector<double>>& vectors,
                                          const std::vector<double>& mask) {
  std::vector<double> mean(mask.size());
  for (size_t r = 0; r < vectors.size(); ++r) {
    const std::vector<double> sent = packed(vectors[r], owed_[r], mask);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += sent[i] / double(vectors.size());
  }
  return packed(std::move(mean), owner_owed_, mask);
}

double wave_gradient(size_t replica, int64_t step, size_t parameter, size_t element) {
  if (element % 7 == 3) return 0;
  const auto x = double(1 + element % 13), r = double(replica), t = double(step);
  return std::sin(x * (1 + 0.1 * t) + r) + 0.3 * std::cos(2.3 * x + double(parameter) + t * r);
}

GivenGradients::GivenGradients(comm::ProcessGroup& group, const Make& make, Gradient gradient)
    : group_(group), context_(small_context(1)), gradient_(std::move(gradient)) {
  materialize(model_, context_, DType::kF32, 1);
  std::vector<OptimShard> shards = local_shards(model_, context_);
  for (OptimShard& shard : shards) {
    shard.replicas = std::make_shared<ShardReplicas>(
        comm::replicas_of(group, [](const comm::Work& work) { work.wait(); }));
  }
  optimizer_ = make(std::move(shards));
}

void GivenGradients::step(int64_t step, float lr) {
  optimizer_->prepare(context_, step, lr);
  const bool of_all = optimizer_->needs_replica_sum();
  for (size_t p = 0; p < kParameters; ++p) {
    const OptimShard& shard = optimizer_->shards()[p];
    std::vector<float> grad(static_cast<size_t>(shard.grad.numel()));
    for (size_t i = 0; i < grad.size(); ++i) {
      double sum = 0;
      for (size_t r = 0; r < replicas(); ++r) {
        const bool counts = of_all || r == static_cast<size_t>(group_.rank());
        if (counts) sum += gradient_(r, step, p, i);
      }
      grad[i] = static_cast<float>(sum / double(replicas()));
    }
    context_.copy(shard.grad.data(), grad.data(), shard.grad.bytes());
    leaf_state(shard.spans.front().parameter->value).has_value = true;
  }
  optimizer_->step();
  optimizer_->zero_grad();
}

std::vector<double> GivenGradients::values(size_t parameter) const {
  const std::vector<float> values = to_host<float>(optimizer_->shards()[parameter].master);
  return {values.begin(), values.end()};
}

}  // namespace shale::test
