// Renders templates for chat_templates.py. Each line of stdin is a JSON object {"template": TEXT,
// "now": SECONDS, "cases": [VALUES, ...]}. For each, writes a line with an array that has one
// element per case: {"text": TEXT, "generations": [[BEGIN, END], ...]} or {"error": MESSAGE}.
#include <iostream>
#include <string>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/runtime/data/jinja/jinja.h"

namespace shale {
namespace {

Json rendered(const JinjaTemplate& chat, const Json& values, int64_t now) {
  const JinjaText out = chat.render(values, {.now = now});
  Json ranges = Json::array();
  for (const auto& [begin, end] : out.generations) ranges.push_back(Json::array({begin, end}));
  return {{"text", out.text}, {"generations", ranges}};
}

Json answer(const Json& question) {
  Json answers = Json::array();
  for (const Json& values : question["cases"]) {
    try {
      const JinjaTemplate chat(question["template"].text(), "template");
      answers.push_back(rendered(chat, values, question["now"].integer()));
    } catch (const Error& error) {
      answers.push_back({{"error", error.what()}});
    }
  }
  return answers;
}

}  // namespace
}  // namespace shale

int main() {
  using namespace shale;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(Json::parse(line, {}, "stdin")).dump() << std::endl;
  }
}
