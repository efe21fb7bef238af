#pragma once

#include <string>
#include <string_view>

#include "shale/models/language_model.h"

namespace shale::models {

// What of a model's configuration its parameters belong to, as a JSON object in canonical form: no
// blanks, keys in order. Dropout and the like belong to the run.
std::string model_shape_json(const LanguageModelConfig& model);

// The reverse. Throws DataError, starting with `source`, for what cannot be a model.
LanguageModelConfig parse_model_shape(std::string_view json, const std::string& source);

}  // namespace shale::models
