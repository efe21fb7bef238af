#include "shale/models/language/model.h"

namespace shale::models {

double LanguageModel::flops_per_token(int64_t seq_len) const {
  double count = 0;
  for (const Parameter* parameter : parameters()) count += static_cast<double>(parameter->numel());
  return 6 * count + 6 * static_cast<double>(config_.layers) * static_cast<double>(config_.width) *
                         static_cast<double>(seq_len);
}

}  // namespace shale::models
