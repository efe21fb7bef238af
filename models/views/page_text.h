#pragma once

namespace shale::models {

// Text of models/views/page, which the build embeds. The feed goes between kPageStart and kPageEnd.
extern const char* const kPageStart;
extern const char* const kPageEnd;

}  // namespace shale::models
