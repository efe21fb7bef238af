// A custom layer for tensor parallelism: it declares how it is sharded, and is otherwise written
// for one rank. Losses equal those of one rank up to rounding.
//
// Run: tensor_parallel, or mpirun -np 2 --bind-to none tensor_parallel
#include <shale/shale.h>

#include <cstdio>

namespace {

using namespace shale;

// Computes y = x + relu(x upᵀ + b)² downᵀ (arXiv:2109.08668, section 3).
struct SquaredRelu : Module {
  SquaredRelu(Module* parent, std::string name, int64_t width, int64_t hidden)
      : Module(parent, std::move(name)),
        up(this, "up", width, hidden, Init::normal(0.2f)),
        down(this, "down", hidden, width, Init::normal(0.2f), nn::Bias::kNo) {
    up.split_outputs();  // shards the hidden channels
    down.split_inputs();
  }

  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      return distribution().across(in, in, [this](const Tensor& rows, const Tensor& residual) {
        const Tensor h = relu(up.forward(rows));
        return down.forward(mul(h, h), residual);
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

// Returns this rank's slice of the rows. Between sharded layers, each rank has only its slice.
Tensor slice_of_rows(const Tensor& x, const comm::ProcessGroup& group) {
  const int64_t rows = x.size(0) / group.size();
  return contiguous(slice(x, 0, group.rank() * rows, (group.rank() + 1) * rows));
}

int train(comm::World& world) {
  Context context({.device = world.device()});
  const auto group = world.group({}, context.backend());
  Model model;
  comm::Parallel parallel(*group, context, {.tensor = group->size()});
  parallel.cut({&model}, {});
  comm::DataParallel data(model, {}, context, parallel.groups(), {});
  optim::AdamW optimizer(data.shards(), {});
  const Tensor x = slice_of_rows(full(context, {8, 16}, DType::kF32, 0.5), *group),
               target = slice_of_rows(zeros(context, {8, 16}, DType::kF32), *group);
  for (int64_t step = 0; step < 40; ++step) {
    optimizer.prepare(context, step, 0.01f);
    const Tensor loss = model.loss(x, target);
    backward(loss);
    data.finish_gradients();
    data.clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
    // The loss is that of this rank's rows only, so it is added over the ranks.
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
