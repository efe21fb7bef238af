// A layer of one's own that ranks share: it says what may be cut of it, does its part on every
// leaf, and a table of names cuts it. All ranks print the losses of one rank, to rounding; with
// equal leaves, to the bit.
//
// Run: tensor_parallel, or mpirun -np 2 --bind-to none tensor_parallel
#include <shale/shale.h>

#include <cstdio>

namespace {

using namespace shale;

// y = x + relu(x upᵀ + b)² downᵀ (arXiv:2109.08668, section 3). Nothing in it mentions ranks.
struct SquaredRelu : Module {
  SquaredRelu(Module* parent, std::string name, int64_t width, int64_t hidden)
      : Module(parent, std::move(name)),
        up(this, "up", width, hidden, Init::normal(0.2f)),
        down(this, "down", hidden, width, Init::normal(0.2f), nn::Bias::kNo) {}

  // Hidden channels may be cut: outputs of `up`, inputs of `down`.
  bool accepts(const Parameter& parameter, const Partition& partition) const override {
    const int dim = parameter.owner == &up ? 0 : 1;
    return partition.share == LeafShare::kCut && partition.dim == dim;
  }

  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      return nn::over_leaves(exchange(), in, in,
                             [this](const Tensor& rows, size_t leaf, const Tensor& residual) {
                               const Tensor h = relu(up.forward(rows, {}, leaf));
                               return down.forward(mul(h, h), residual, leaf);
                             });
    });
  }

  nn::Linear up, down;
};

struct Model : Module {
  Model() : first(this, "first", 16, 64), second(this, "second", 16, 64) {}
  Tensor loss(const Tensor& x, const Tensor& target) {
    return run(x, [&](const Tensor& in) {
      return mse_loss(second.forward(first.forward(in)), target, LossReduction::kSum);
    });
  }

  SquaredRelu first, second;
};

// This rank's slice of the rows: between layers that are cut a rank has no more.
Tensor slice_of_rows(const Tensor& x, const nn::Exchange& exchange) {
  const int64_t rows = x.size(0) / exchange.ranks();
  return contiguous(slice(x, 0, exchange.rank() * rows, (exchange.rank() + 1) * rows));
}

int train(comm::World& world) {
  Context context({.device = world.device()});
  const auto group = world.group({}, context.backend());
  const auto alone = group->split(group->rank(), 0, "alone");  // no data parallelism here
  Model model;
  const auto plan = comm::TensorPlan().columns("*.up").rows("*.down");
  const auto exchange = comm::tensor_parallel(model, plan, *group);
  comm::DataParallel parallel(model, {}, context,
                              comm::ShardGroups{.shard = alone.get(), .tensor = group.get()}, {});
  optim::AdamW optimizer(parallel.shards(), {});
  const Tensor x = full(context, {8, 16}, DType::kF32, 0.5),
               target = zeros(context, {8, 16}, DType::kF32);
  for (int64_t step = 0; step < 60; ++step) {
    optimizer.prepare(context, step, 0.01f);
    const Tensor loss = model.loss(slice_of_rows(x, *exchange), slice_of_rows(target, *exchange));
    backward(loss);
    parallel.finish_gradients();
    parallel.clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
    // The loss of this rank's rows.
    float sum = to_host<float>(loss)[0];
    group->host().all_reduce_sum(make_view(&sum, {1}));
    if (world.rank() == 0 && step % 20 == 19) {
      std::printf("step %lld: loss %.4f\n", static_cast<long long>(step + 1), double{sum});
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shale::comm::run(argc, argv, train);
}
