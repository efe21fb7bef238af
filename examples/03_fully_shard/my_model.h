#pragma once

// Model and data of main.cpp: residual blocks that learn a sum of sines.

#include <shale/shale.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// x + down(gelu(up(norm(x)))). x: [n, width].
struct MyBlock : shale::Module {
  MyBlock(shale::Module* parent, std::string name, int64_t width)
      : Module(parent, std::move(name)),
        norm(this, "norm", width, 1e-5f),
        up(this, "up", width, 4 * width, shale::Init::normal(0.1f)),
        down(this, "down", 4 * width, width, shale::Init::normal(0.1f)) {}

  // Calls run(), whose hooks gather the block's parameters and reduce its gradients.
  shale::Tensor forward(const shale::Tensor& x) {
    return run(x, [this](const shale::Tensor& in) {
      return down.forward(gelu(up.forward(norm.forward(in))), in);
    });
  }

  shale::nn::LayerNorm norm;
  shale::nn::Linear up, down;
};

struct MyBatch {
  shale::Tensor x;       // [n, 8]
  shale::Tensor wanted;  // [n, 1]
};

class MyModel : public shale::Module {
 public:
  static constexpr int64_t kWidth = 32, kInputs = 8;

  MyModel()
      : first_(this, "first", kInputs, kWidth, shale::Init::normal(0.3f)),
        last_(this, "last", kWidth, 1, shale::Init::normal(0.1f)) {
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(std::make_unique<MyBlock>(this, "block" + std::to_string(i), kWidth));
    }
  }

  std::vector<shale::Module*> blocks() {
    std::vector<shale::Module*> list;
    for (const auto& block : blocks_) list.push_back(block.get());
    return list;
  }

  // Returns the mean squared error, a scalar.
  shale::Tensor loss(const MyBatch& batch) {
    return run({batch.x, batch.wanted}, [this](const Tensors& in) -> Tensors {
      shale::Tensor x = first_.forward(in[0]);
      for (const auto& block : blocks_) x = block->forward(x);
      const shale::Tensor error = last_.forward(x) - in[1];
      return {mean(error * error)};
    })[0];
  }

 private:
  shale::nn::Linear first_, last_;
  std::vector<std::unique_ptr<MyBlock>> blocks_;
};

// Batches that differ between ranks and steps.
class MyData {
 public:
  MyData(shale::Context& context, int rank) : context_(context), rank_(rank) {}

  MyBatch batch(int64_t step) const {
    constexpr int64_t kRows = 32;
    std::vector<float> x, wanted;
    for (int64_t row = 0; row < kRows; ++row) {
      float sum = 0;
      for (int64_t i = 0; i < MyModel::kInputs; ++i) {
        const auto place = double(((step * 64 + rank_) * kRows + row) * MyModel::kInputs + i);
        x.push_back(static_cast<float>(std::sin(place * place)));
        sum += std::sin(2 * x.back());
      }
      wanted.push_back(sum / 2);
    }
    return {shale::from_host<float>(context_, x, {kRows, MyModel::kInputs}),
            shale::from_host<float>(context_, wanted, {kRows, 1})};
  }

 private:
  shale::Context& context_;
  int rank_;
};

inline void print_loss(int64_t step, const shale::Tensor& loss) {
  std::printf("step %3d | loss %.5f\n", int(step), double(shale::to_host<float>(loss).front()));
}
