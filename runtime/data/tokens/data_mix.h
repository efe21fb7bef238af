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
  double weight = 0;  // weight of the source, relative to the sum of weights; 0: use `epochs`
  double epochs = 1;  // number of epochs of this source per epoch of sources with `epochs` 1
  DataFormat format = DataFormat::kAuto;
  std::optional<TokenWidth> width = {};
};

// Parses the value of --data. An existing path is a single source, whatever its name contains. So
// is a value without commas and weights. A name that ends with ".mix.json" is a file that lists
// sources, with paths relative to its folder:
//
//   {"sources": [{"path": "web", "weight": 0.7}, {"path": "code", "weight": 0.3,
//                 "format": "raw", "dtype": "u32"}]}
//
// If a source has "epochs" in place of "weight", its share is proportional to its size times that
// number. Other values are sources separated by commas. Each is an existing path, or such a path
// with a colon and a weight: "web:0.7,code:0.3". Without weights, shares are proportional to sizes.
//
// Throws MissingInputError for a path that does not exist, ConfigError for a weight that is not a
// positive number and if only some sources have weights, DataError for a malformed file.
std::vector<DataPart> parse_data(const std::string& data);

// The opened sources, and how to mix them.
struct MixedData {
  std::vector<DataPart> parts;
  std::vector<DatasetSplits> sources;
  // Checksums over all sources (see DatasetSplits).
  uint64_t fingerprint = 0;
  uint64_t checksum = 0;

  int64_t train_tokens() const;
  int64_t vocab_bound() const;  // maximum over all sources
  bool is_text() const;         // true if all sources are text
  std::string format() const;   // returns "text" or "mixture"
  // Returns the mixture by weights; without weights, by `samples`, the number of samples per epoch
  // of each source.
  Mixture mixture(const std::vector<int64_t>& samples) const;
};

// Opens each part with these options, except that it has its own path, format and width. Throws
// like open_dataset().
MixedData open_parts(std::vector<DataPart> parts, const DataOptions& options);

}  // namespace shale
