#pragma once

#include "shale/models/language/family.h"

namespace shale::models {

// GPT-2 and nano, a small one for bytes.
const ModelFamily& gpt2_family();

}  // namespace shale::models
