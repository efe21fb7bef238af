#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "shale/comm/parallel/tensor/group_exchange.h"
#include "shale/runtime/nn/cut_sequence.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {

inline nn::CutSequence cut_over(comm::ProcessGroup& group, int64_t tokens,
                                nn::ContextKind kind = nn::ContextKind::kGather) {
  const auto over = [&](auto&& some, int leaves) {
    return std::make_unique<comm::GroupExchange>(std::forward<decltype(some)>(some), leaves,
                                                 "context");
  };
  nn::CutSequence cut(over(group, group.size()), tokens, kind);
  if (kind == nn::ContextKind::kUlyssesRing) {
    const int size = context_group(kind, group.size()), rank = group.rank();
    auto heads = over(group.split(rank / size, rank, "heads"), size);
    cut.set_groups(std::move(heads), over(group.split(rank % size, rank, "ring"), group.size()));
  }
  return cut;
}

// What this rank has of whole[B, T, ...], where padding is 0.
inline std::vector<float> own_of(const std::vector<float>& whole, int64_t B, int64_t T,
                                 const nn::CutSequence& cut) {
  const nn::SequenceParts parts = cut.parts();
  const int64_t S = cut.chunk_tokens(), row = int64_t(whole.size()) / (B * T);
  std::vector<float> own;
  for (int leaf = parts.first; leaf < parts.first + parts.count; ++leaf) {
    for (int64_t b = 0; b < B; ++b) {
      for (const int half : {0, 1}) {
        for (int64_t t = parts.chunk(leaf, half) * S; t < (parts.chunk(leaf, half) + 1) * S; ++t) {
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

}  // namespace shale::test
