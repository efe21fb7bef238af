#pragma once

namespace shale::models {

// Text of models/views/page, which the build embeds: the feed goes between the two parts.
extern const char* const kPageStart;
extern const char* const kPageEnd;

}  // namespace shale::models
