// A custom model as a Task for the trainer, which provides ranks, all ZeRO stages, mixed precision,
// gradient accumulation, checkpoints and resuming, metrics, signals, and flags for each of them.
//
// Run: task --steps 200 --eval-every 100, or mpirun -np 2 --bind-to none task --zero 3 --resume
// auto; task --help lists the flags.
#include <shale/shale.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using shale::Tensor;

constexpr int64_t kClasses = 3;

// Classifies points by the spiral arm, one of three, on which they lie.
class Classifier : public shale::Module {
 public:
  Classifier()
      : first_(this, "first", 2, kWidth, shale::Init::normal(1)),
        middle_(this, "middle", kWidth, kWidth, shale::Init::normal(0.2f)),
        last_(this, "last", kWidth, kClasses, shale::Init::normal(0.2f)) {}

  std::vector<shale::Module*> units() { return {&middle_}; }

  // Returns the sum of the points' losses. x: [n, 2]; labels: [n] i32.
  Tensor loss(const Tensor& x, const Tensor& labels) {
    return run({x, labels}, [this](const Tensors& in) -> Tensors {
      Tensor logits = last_.forward(gelu(middle_.forward(gelu(first_.forward(in[0])))));
      return {cross_entropy_(logits, in[1], kClasses)};
    })[0];
  }

 private:
  static constexpr int64_t kWidth = 32;
  shale::nn::Linear first_, middle_, last_;
};

// Generates points [first, first + count) of an endless sequence. A point depends only on its
// position, so a resumed run needs no other state.
void fill(shale::Batch& batch, int64_t first, int64_t count, shale::DType dtype) {
  batch.first_position = first;
  batch.count = count;
  const auto labels = batch.set("labels", shale::DType::kI32, {count}).values<int32_t>();
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) {
    const auto place = double(first + i);
    const double along = 0.5 + 0.5 * std::sin(place * place);
    labels[size_t(i)] = int32_t((first + i) % kClasses);
    const double angle = 3 * along + 2 * 3.14159265 / kClasses * labels[size_t(i)];
    x.push_back(float(along * std::cos(angle)));
    x.push_back(float(along * std::sin(angle)));
  }
  shale::HostTensor& points = batch.set("x", dtype, {count, 2});
  for (size_t i = 0; i < x.size(); ++i) {
    if (dtype == shale::DType::kF32) points.values<float>()[i] = x[i];
    if (dtype == shale::DType::kBF16) points.values<shale::bf16>()[i] = shale::bf16(x[i]);
    if (dtype == shale::DType::kF16) points.values<shale::f16>()[i] = shale::f16(x[i]);
  }
}

class SpiralTask : public shale::models::Task {
 public:
  SpiralTask(const shale::models::RunConfig& config, shale::DType dtype)
      : batches_(shale::models::batch_layout(config, /*ranks=*/1)), dtype_(dtype) {}

  shale::Module& model() override { return model_; }
  std::vector<shale::Module*> units() override { return model_.units(); }

  shale::BatchSource train_batches(const shale::models::BatchPlan& plan) override {
    return [plan, dtype = dtype_](int64_t index, shale::Batch& batch) {
      const shale::BatchLayout& layout = plan.layout;
      const auto [step, micro] = layout.place_of(plan.first_step, index);
      fill(batch, layout.first_position(step, plan.rank, micro), layout.micro_batch, dtype);
      return true;
    };
  }
  Tensor loss(const shale::DeviceBatch& batch) override {
    return model_.loss(batch["x"], batch["labels"]);
  }
  double step_weight(int64_t step) const override { return double(batches_.batch_at(step)); }

  void check_evaluation() const override {}
  shale::models::Evaluation evaluate(const shale::models::TaskContext& run) override {
    constexpr int64_t kFirst = 1'000'000, kCount = 300;  // not in the training data
    const shale::Inference inference(run.context);
    shale::Batch batch;
    fill(batch, kFirst, kCount, dtype_);
    const Tensor sum = loss(shale::DeviceBatch(run.context, batch));
    return {.loss = double(to_host<float>(sum).front()) / kCount, .items = kCount};
  }

  shale::models::SampleUnit unit() const override {
    return {.samples = "points", .items = "points", .item = "points"};
  }
  std::vector<std::string> summary() const override { return {"three spiral arms"}; }
  std::map<std::string, std::string> same_on_all_ranks() const override { return {}; }
  // Empty, because the data is generated and not read from files.
  std::map<std::string, std::string> data_checksums() const override { return {}; }
  std::map<std::string, std::string> facts() const override {
    return {{"training data", "\"three spiral arms\""}};
  }

 private:
  Classifier model_;
  shale::BatchLayout batches_;
  shale::DType dtype_;
};

int train(shale::comm::World& world, int argc, char** argv) {
  shale::models::RunConfig config;
  config.lr = 0.01;
  config.micro_batch = 48;
  config.no_save = true;
  shale::ConfigSpec spec("task", "tells the arms of a spiral apart");
  describe(spec, config, {.sample = "point", .default_lr = "0.01"});
  const shale::ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) {
    if (world.rank() == 0) std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  shale::set_process_log({.quiet = config.quiet});
  resolve(config, world.size());
  world.watch({.timeout_s = config.timeout_s});
  SpiralTask task(config, dtype_of_flag(config.dtype, device_of(config, world)));
  resolve_steps(config, spec, task.samples_per_epoch(), world.size());
  return static_cast<int>(shale::models::Trainer(config, spec, task, world).run());
}

}  // namespace

int main(int argc, char** argv) {
  const shale::models::StopSignals stop_signals;  // from here on, signals do not interrupt a step
  return shale::comm::run(argc, argv,
                          [&](shale::comm::World& world) { return train(world, argc, argv); });
}
