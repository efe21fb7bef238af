// A GAN under ZeRO: two models and the program's own state in one module tree, an optimizer for
// each model, and one checkpoint of everything, from which a second run continues with the same
// bits. Metrics have additional columns, and log lines go to a function of the program.
//
// Run: gan FOLDER [STAGE], or mpirun -np 3 --bind-to none gan FOLDER [STAGE]
#include <shale/checkpoint.h>
#include <shale/shale.h>
#include <shale/training.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace shale;
namespace {

constexpr int64_t kRows = 64, kNoise = 4, kWidth = 16, kSteps = 300;

// Two layers. x: [n, inputs]; returns [n, 1].
struct Net : Module {
  Net(Module* parent, std::string name, int64_t inputs)
      : Module(parent, std::move(name)),
        first(this, "first", inputs, kWidth, Init::normal(0.5f)),
        last(this, "last", kWidth, 1, Init::normal(0.3f)) {}

  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return last.forward(tanh(first.forward(in))); });
  }
  nn::Linear first, last;
};

struct Gan : Module {
  Gan()
      : generator(this, "generator", kNoise),
        critic(this, "critic", 1),
        average(declare_buffer({.name = "average", .shape = {1}})) {}
  Net generator, critic;
  Buffer& average;  // moving mean of the critic's loss over ranks and steps
};

class Training {
 public:
  Training(Context& context, comm::ProcessGroup& group, int stage)
      : context_(context), group_(group) {
    for (Module* part : std::vector<Module*>{&gan_.generator, &gan_.critic, &gan_}) {
      comm::fully_shard(*part, context, group, {.stage = stage, .seed = 7});
    }
    const auto shards = comm::optim_shards(gan_);
    const optim::AdamWOptions adam{.beta1 = 0.5f, .weight_decay = 0};
    generator_.emplace(select_parameters(shards, "generator.*"), adam);
    critic_.emplace(select_parameters(shards, "critic.*"), adam);
  }

  void load(const std::string& folder) {
    auto reader = comm::open_checkpoint(group_.host(), *newest_checkpoint(folder));
    comm::load_training_state(reader, parallel(), {&*generator_, &*critic_});
  }
  void save(const std::string& folder, int64_t step) {
    std::filesystem::create_directories(folder);
    comm::CheckpointSaver saver(group_.host(), context_, folder, {.keep = 1});
    const auto parts = comm::training_state(parallel(), {&*generator_, &*critic_});
    saver.save({.step = step}, comm::share_to_write(parts, parallel().shared().groups));
    saver.finish();
  }

  // The critic tells numbers around 3 from the generator's; the generator learns to deceive it.
  StepMetrics step(int64_t step) {
    generator_->prepare(context_, step, 0.01f);
    critic_->prepare(context_, step, 0.01f);
    const Tensor real = 3 + 0.5f * randn(context_, {kRows, 1});
    const Tensor fake = gan_.generator.forward(randn(context_, {kRows, kNoise}));
    const Tensor critic_loss = judge(real, 1) + judge(fake.detach(), 0);
    backward(comm::mean_over_ranks(gan_, critic_loss));
    critic_->step();
    zero_grad(comm::optim_shards(gan_));

    const Tensor loss = judge(fake, 1);
    backward(comm::mean_over_ranks(gan_, loss));
    generator_->step();
    zero_grad(comm::optim_shards(gan_));  // the critic's too, because this loss computed them

    const NoGrad no_grad(context_);
    const Tensor sum = comm::all_reduce_sum(group_, reshape(critic_loss, {1}));
    gan_.average.value = 0.9f * gan_.average.value + sum * (0.1f / float(group_.size()));
    return {.step = step + 1,
            .loss = to_host<float>(loss).front(),
            .more = {{"critic_loss", double{to_host<float>(gan_.average.value).front()}}}};
  }

  std::vector<float> sample() {
    const NoGrad no_grad(context_);
    return to_host<float>(gan_.generator.forward(randn(context_, {1000, kNoise}, DType::kF32, 1)));
  }

 private:
  Tensor judge(const Tensor& x, double label) {
    const Tensor target = full(context_, {kRows, 1}, DType::kF32, label);
    return bce_with_logits_loss(gan_.critic.forward(x), target);
  }
  comm::DataParallel& parallel() { return comm::data_parallel_of(gan_); }
  Context& context_;
  comm::ProcessGroup& group_;
  Gan gan_;
  std::optional<optim::AdamW> generator_, critic_;
};

// Runs steps [first, last). Starts from the checkpoint unless `first` is 0. Returns the generator's
// numbers.
std::vector<float> train(comm::World& world, const std::string& folder, int stage, int64_t first,
                         int64_t last) {
  Context context({.device = world.device(), .seed = 1 + uint64_t(world.rank())});
  const auto group = world.group({}, context.backend());
  Training training(context, *group, stage);
  if (first > 0) training.load(folder);
  for (int64_t step = first; step < last; ++step) {
    const StepMetrics row = training.step(step);
    if (world.rank() == 0) MetricsWriter(folder + ".jsonl").write(row);
    if (row.step % 100 == 0) log_info("step ", row.step, ", loss ", row.loss);
  }
  if (last < kSteps) training.save(folder, last);
  return training.sample();
}

// Receives the lines of the log.
ssize_t take_lines(void*, const char* text, size_t bytes) {
  return std::printf("gan: %.*s", int(bytes), text) < 0 ? 0 : ssize_t(bytes);
}

}  // namespace

int main(int argc, char** argv) {
  FILE* const sink = fopencookie(nullptr, "w", {nullptr, take_lines, nullptr, nullptr});
  set_process_log({.out = sink, .err = sink});
  return comm::run(argc, argv, [argc, argv](comm::World& world) {
    if (argc < 2) throw ConfigError("gan: expected FOLDER [STAGE]");
    const std::string folder = argv[1];
    std::filesystem::create_directories(folder);
    const int stage = argc > 2 ? std::stoi(argv[2]) : 3;
    const auto at_once = train(world, folder + "/whole", stage, 0, kSteps);
    train(world, folder + "/halves", stage, 0, kSteps / 2);
    const auto in_halves = train(world, folder + "/halves", stage, kSteps / 2, kSteps);
    double mean = 0;
    for (const float x : at_once) mean += double{x} / double(at_once.size());
    if (world.rank() == 0) std::printf("mean of the generator's numbers: %.3f\n", mean);
    return at_once == in_halves && mean > 2 && mean < 4 ? 0 : 1;
  });
}
