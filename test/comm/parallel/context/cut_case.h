#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {

// A sharded sequence with one mesh rank in each process of a group.
inline comm::CutSequence cut_over(comm::ProcessGroup& group, int64_t tokens,
                                  comm::ContextKind kind = comm::ContextKind::kGather) {
  const auto over = [&](auto&& some) {
    auto line = std::make_shared<comm::MeshLine>(std::forward<decltype(some)>(some), nullptr, 1,
                                                 comm::MeshLine::Options{.name = "context"});
    return std::make_unique<comm::HostedExchange>(std::move(line), 0);
  };
  comm::CutSequence cut(over(group), tokens, kind);
  if (kind == comm::ContextKind::kUlyssesRing) {
    const int size = context_group(kind, group.size()), rank = group.rank();
    const auto split = [&](int color, const char* name) -> std::shared_ptr<comm::ProcessGroup> {
      return group.split(color, rank, name);
    };
    auto heads = over(split(rank / size, "heads"));
    cut.set_groups(std::move(heads), over(split(rank % size, "ring")));
  }
  return cut;
}

// Returns this rank's part of whole[B, T, ...]; the padding is 0.
inline std::vector<float> own_of(const std::vector<float>& whole, int64_t B, int64_t T,
                                 const comm::CutSequence& cut) {
  const comm::SequenceParts parts = cut.parts();
  const int64_t S = cut.chunk_tokens(), row = int64_t(whole.size()) / (B * T);
  std::vector<float> own;
  for (int shard = parts.first; shard < parts.first + parts.count; ++shard) {
    for (int64_t b = 0; b < B; ++b) {
      for (const int half : {0, 1}) {
        for (int64_t t = parts.chunk(shard, half) * S; t < (parts.chunk(shard, half) + 1) * S;
             ++t) {
          for (int64_t i = 0; i < row; ++i) {
            own.push_back(t < T ? whole[size_t((b * T + t) * row + i)] : 0);
          }
        }
      }
    }
  }
  return own;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double(a[i]) - double(b[i])));
  }
  return largest;
}

inline models::LanguageModelConfig long_model(const std::string& family) {
  models::LanguageModelConfig config = six_layers(family);
  config.layers = 2;
  config.context = 24;
  if (family == "mistral") config.window = 5;
  return config;
}

// Returns the error message with which a model is refused. Collective.
template <typename Error>
std::string refusal_of(comm::ProcessGroup& group, const comm::Degrees& degrees,
                       const comm::ModelPlan& plan, const comm::ParallelOptions& options = {}) {
  Context context(small_context(1));
  comm::Parallel parallel(group, context, degrees, options);
  return message_of<Error>([&] {
    parallel.build<models::LanguageModel>(
        plan, [] { return models::make_language_model(long_model("llama")); });
  });
}

}  // namespace shale::test
