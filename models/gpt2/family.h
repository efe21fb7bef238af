#pragma once

#include "shale/models/language/family.h"

namespace shale::models {

// Returns the family of GPT-2 and nano, a small model for bytes.
const ModelFamily& gpt2_family();

}  // namespace shale::models
