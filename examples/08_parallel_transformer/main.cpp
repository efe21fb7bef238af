// A custom decoder-only transformer, trained along several axes in the same run: its blocks are
// written for one rank, and a single loop trains it. Losses are bit-identical on 1, 2, 4 and 8
// processes: if there are fewer processes than ranks, a process hosts several ranks.
//
// Run: parallel_transformer context, or mpirun -np 4 --bind-to none parallel_transformer pipeline
#include <shale/shale.h>

#include <cstdio>
#include <string>

namespace {

using namespace shale;

constexpr int64_t kVocab = 64, kTokens = 32, kWidth = 32, kHeads = 4, kHidden = 96, kLayers = 4;
constexpr int64_t kBatch = 8;  // sequences per step; each is a micro-batch
const Init kInit = Init::normal(0.1f);

// A block written for one rank. across() gives it the `rows` of all ranks that share the layer, and
// adds their results.
struct Block : Module {
  Block(Module* parent, int64_t layer)
      : Module(parent, "layers." + std::to_string(layer)),
        norm_1(this, "norm_1", kWidth, 1e-5f),
        qkv(this, "qkv", kWidth, 3 * kWidth, kInit, nn::Bias::kNo),
        out(this, "out", kWidth, kWidth, kInit, nn::Bias::kNo),
        norm_2(this, "norm_2", kWidth, 1e-5f),
        gate(this, "gate", kWidth, kHidden, kInit, nn::Bias::kNo),
        up(this, "up", kWidth, kHidden, kInit, nn::Bias::kNo),
        down(this, "down", kHidden, kWidth, kInit, nn::Bias::kNo) {
    // Ranks shard the outputs of the first GEMMs and the inputs of the last ones.
    qkv.split_outputs({.groups = 3, .unit = kWidth / kHeads});
    gate.split_outputs();
    up.split_outputs();
    out.split_inputs();
    down.split_inputs();
  }
  Tensor forward(const Tensor& in) {
    return run(in, [this](const Tensor& x) {
      const auto attention = [this](const Tensor& rows, const Tensor& residual) {
        const int64_t heads = qkv.weight.shape[0] / (3 * kWidth / kHeads);  // heads of this rank
        const Tensor seen = distribution().packed_attention(qkv.forward(rows), heads);
        return out.forward(seen, residual);
      };
      const auto geglu = [this](const Tensor& rows, const Tensor& residual) {  // arXiv:2002.05202
        return down.forward(mul(gelu(gate.forward(rows)), up.forward(rows)), residual);
      };
      const Tensor y = distribution().across(norm_1.forward(x), x, attention);
      return distribution().across(norm_2.forward(y), y, geglu);
    });
  }
  nn::RmsNorm norm_1;
  nn::Linear qkv, out;
  nn::RmsNorm norm_2;
  nn::Linear gate, up, down;
};

struct Transformer : Module {
  Transformer()
      : tokens(this, "tokens", kVocab, kWidth, kInit),
        positions(this, "positions", kTokens, kWidth, kInit),
        norm(this, "norm", kWidth, 1e-5f),
        head(this, "head", kVocab, kWidth, kInit) {
    for (int64_t i = 0; i < kLayers; ++i) layers.push_back(std::make_unique<Block>(this, i));
    positions.weight.split = {Share::kFirst};  // only one tensor rank adds the positions
  }
  // Pieces that a pipeline distributes over its stages, with the units that ZeRO shards.
  std::vector<nn::Piece> pieces() {
    std::vector<nn::Piece> all;
    all.push_back({.name = "embedding", .parameters = nn::parameters_of({&tokens, &positions})});
    for (auto& layer : layers) {
      all.push_back({layer->name(), layer.get(), layer->parameters(), double(whole_numel(*layer))});
    }
    all.push_back({.name = "head", .parameters = nn::parameters_of({&norm, &head})});
    return all;
  }
  // Runs some of the pieces. The last piece returns what its micro-batch adds to the mean loss of a
  // step.
  Tensor forward(const comm::ForwardPass& pass, const Tensor& ids, const Tensor& targets) {
    const bool is_first = pass.pieces.first == 0;
    return run(is_first ? ids : pass.x, [=, this](const Tensor& in) {
      Tensor x = is_first ? tokens.forward(in, &positions) : in;
      for (int i = pass.pieces.first; i < pass.pieces.end; ++i) {
        if (i > 0 && i <= kLayers) x = layers[size_t(i - 1)]->forward(x);
      }
      if (pass.pieces.end < kLayers + 2) return x;
      return scale(head.loss(norm.forward(x), targets, kVocab), 1.0f / (kBatch * kTokens));
    });
  }
  nn::Embedding tokens, positions;
  std::vector<std::unique_ptr<Block>> layers;
  nn::RmsNorm norm;
  nn::Embedding head;
};

// Generates a sequence of numbers that increase by the sequence's step.
std::vector<int32_t> make_sequence(int64_t number) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t <= kTokens; ++t) {
    ids.push_back(int32_t((number + t * (1 + number % 5)) % kVocab));
  }
  return ids;
}

int train(comm::World& world, const comm::Degrees& degrees, int zero_stage) {
  Context context({.device = world.device()});
  const auto group = world.group({}, context.backend());
  comm::Parallel parallel(*group, context, comm::fit_degrees(degrees, group->size()));
  const auto models = parallel.build<Transformer>({.tokens = kTokens, .key_heads = kHeads},
                                                  [] { return std::make_unique<Transformer>(); });
  comm::ParallelStep step(parallel, models,
                          {.data = {.stage = zero_stage, .reproducible = true, .seed = 1},
                           .micro_batches = kBatch,
                           .width = kWidth});
  optim::AdamW optimizer(step.data().shards(), {});
  for (int64_t i = 0; i < 30; ++i) {
    optimizer.prepare(context, i, /*lr=*/0.01f);
    const double loss = step.run([&](const comm::ForwardPass& pass) {
      const std::vector<int32_t> ids = make_sequence(i * kBatch + pass.micro_batch);
      const auto inputs = std::span(ids).first(kTokens), targets = std::span(ids).last(kTokens);
      return models[size_t(pass.rank)]->forward(pass, parallel.own_part(inputs, 1),
                                                parallel.own_part(targets, 1));
    });
    step.data().clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
    if (world.rank() == 0 && i % 5 == 4) std::printf("step %d: loss %.9f\n", int(i + 1), loss);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  return shale::comm::run(argc, argv, [&](comm::World& world) {
    if (word == "context") return train(world, {.tensor = 2, .context = 2}, /*zero_stage=*/3);
    if (word == "pipeline") return train(world, {.tensor = 2, .pipeline = 2}, /*zero_stage=*/1);
    throw ConfigError("the argument is \"" + word + "\", expected context or pipeline");
  });
}
