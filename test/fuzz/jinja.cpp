// The input is a chat template, a zero byte, and the content of a message.
#include "shale/runtime/data/jinja/jinja.h"

#include <algorithm>
#include <string>

#include "shale/base/json.h"
#include "shale/test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  const std::string_view input = fuzz::text_of(data, size);
  const size_t end = std::min(input.find('\0'), input.size());
  fuzz::accepts<DataError>([&] {
    const JinjaTemplate chat(input.substr(0, end), "template");
    // dump() replaces invalid UTF-8, so parse() gets valid text.
    const Json content =
        Json::parse(Json(input.substr(std::min(end + 1, size))).dump(), {}, "content");
    const Json user = {{"role", "user"}, {"content", content}};
    const Json assistant = {{"role", "assistant"}, {"content", "a"}, {"n", 1.5}, {"none", nullptr}};
    const Json values = {{"messages", Json::array({user, assistant})}, {"bos_token", "<s>"}};
    const JinjaOptions options{.limits = {.max_steps = 100'000, .max_bytes = 1 << 22}, .now = 0};
    const JinjaText out = chat.render(values, options);
    const JinjaText again = chat.render(values, options);
    fuzz::require(out.text == again.text, "rendering twice gives the same text");
    size_t last = 0;
    for (const auto& [begin, stop] : out.generations) {
      fuzz::require(last <= begin && begin <= stop && stop <= out.text.size(),
                    "generation blocks are inside the text, one behind the other");
      last = stop;
    }
  });
  return 0;
}
