#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/runtime/data/mixture.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale {

// A source of a mixture.
struct DataPart {
  std::string path;
  double weight = 0;  // its part of all samples, of whatever the weights add up to; 0: by `epochs`
  double epochs = 1;  // it comes so many times while one of epochs 1 comes once
  DataFormat format = DataFormat::kAuto;
  std::optional<TokenWidth> width = {};
};

// What --data names: a path that exists is one source, whatever is in its name; so is what has
// neither a comma nor a weight. A name that ends with ".mix.json" is a file that lists sources,
// whose paths begin at its folder:
//
//   {"sources": [{"path": "web", "weight": 0.7}, {"path": "code", "weight": 0.3,
//                 "format": "raw", "dtype": "u32"}]}
//
// with "epochs" in place of "weight" where sources are to be used up alike. Else sources are
// separated by commas, each a path that exists, or one with a weight behind its last colon:
// "web:0.7,code:0.3"; without weights they are used up alike. Throws MissingInputError for a path
// that does not exist, ConfigError for a weight that is no number above 0 and for sources of which
// some have weights, DataError for a malformed file.
std::vector<DataPart> parse_data(const std::string& data);

// Sources that are open, and how they are mixed.
struct MixedData {
  std::vector<DataPart> parts;
  std::vector<DatasetSplits> sources;
  // Of all: see DatasetSplits.
  uint64_t fingerprint = 0;
  uint64_t checksum = 0;
  std::optional<uint64_t> whole_checksum = {};

  int64_t train_tokens() const;
  int64_t vocab_bound() const;  // of all
  bool is_text() const;         // all of them are
  std::string format() const;   // "text", or "mixture"
  // By weights, or by how many samples each source has in an epoch.
  Mixture mixture(const std::vector<int64_t>& samples) const;
};

// Opens each part with these options but its own path, format and width. Throws as open_dataset().
MixedData open_parts(std::vector<DataPart> parts, const DataOptions& options);

}  // namespace shale
