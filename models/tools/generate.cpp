// shale generate: text generation.
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/language/data_config.h"
#include "shale/models/language/text_model.h"
#include "shale/models/tools/model_options.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/runtime/data/chat/line_keys.h"
#include "shale/runtime/data/corpus/documents.h"

namespace shale::models {
namespace {

struct Request {
  ModelOptions model;
  GenerateOptions sampling;
  std::string prompt, prompts, system, stop;
  bool chat = false;
  int64_t batch = 8;
  int64_t seed = 1234;
  double temperature = 0.8, top_p = 1;
  ChatTemplate style = ChatTemplate::kAuto;
};

void describe(ConfigSpec& spec, Request& r) {
  describe(spec, r.model);
  spec.section("What to continue");
  spec.add("prompt", r.prompt, "text to continue; with --chat, the message to answer",
           {.help = {.metavar = "TEXT"}});
  spec.add("prompts", r.prompts,
           "jsonl file of {\"prompt\": TEXT} or {\"messages\": [...]} (\"tools\" optional); prints "
           "a line {\"text\": ...} or {\"error\": ...} for each",
           {.is_path = true, .help = {.metavar = "FILE.jsonl"}});
  spec.add("chat", r.chat,
           "treat each prompt as a user message; without --prompt, each line of stdin is one");
  describe_chat_template(spec, r.style);
  spec.add("system", r.system, "system message of the conversation", {.help = {.metavar = "TEXT"}});
  spec.section("Sampling");
  spec.add("tokens", r.sampling.tokens, "maximum number of tokens to generate",
           {.min = 1, .max = 1 << 20});
  spec.add("temperature", r.temperature, "sampling temperature; 0: always the likeliest token",
           {.min = 0, .max = 100});
  spec.add("top-k", r.sampling.top_k, "sample from this many of the likeliest tokens; 0: from all",
           {.min = 0});
  spec.add("top-p", r.top_p, "sample from the likeliest tokens whose probabilities add up to this",
           {.min = 0, .max = 1, .exclude_min = true});
  spec.add("stop", r.stop, "stop at this text, which is not printed",
           {.help = {.metavar = "TEXT"}});
  spec.add("seed", r.seed, "random seed");
  spec.add("batch", r.batch, "prompts of --prompts per forward pass", {.min = 1, .max = 1 << 16});
  spec.example("shale generate out --prompt \"Once upon a time\"");
  spec.example("shale generate my_model --chat --system \"Be brief.\"");
}

class Generator : public TextGenerator {
 public:
  Generator(const Request& request, TextModel& model)
      : TextGenerator(
            model,
            request.chat || !request.prompts.empty() ? std::optional(request.style) : std::nullopt,
            request.stop),
        sampling_(request.sampling) {}

  // Prints the text while it is generated, and returns it.
  std::string print(const std::vector<int32_t>& prompt) {
    const auto show = [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      return true;
    };
    const std::string all = generate(prompt, sampling_, show);
    show("\n");
    return all;
  }
  std::vector<std::string> answer(const std::vector<std::vector<int32_t>>& prompts) {
    return generate_all(prompts, sampling_);
  }

 private:
  const GenerateOptions& sampling_;
};

std::vector<ChatMessage> begin_of(const Request& request) {
  if (request.system.empty()) return {};
  return {{"system", request.system}};
}

void converse(const Request& request, Generator& generator) {
  std::vector<ChatMessage> messages = begin_of(request);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    messages.push_back({"user", line});
    const auto prompt = generator.fitting<DataError>(generator.encode(messages),
                                                     "standard input: the conversation");
    messages.push_back({"assistant", generator.print(prompt)});
  }
}

// Encodes a prompt, which is a line of the file of --prompts.
std::vector<int32_t> encode_line(const std::string& line, const std::string& place,
                                 const Request& request, Generator& generator) {
  const Json object = Json::parse(line, {.max_bytes = int64_t{64} << 20}, place);
  const char* key = object.contains("messages") ? "messages" : "prompt";
  if (!object.contains(key))
    throw DataError(cat(place, ": expected 'prompt' or 'messages', found neither"));
  const bool is_text =
      object[key].is_string() && !request.chat && key == std::string_view("prompt");
  std::map<std::string, int64_t> ignored;
  try {
    check_line_keys(object, {key, is_text ? key : "tools"}, LineUse::kPrompt, ignored);
    if (is_text) return generator.encode(object[key].text());
    std::vector<ChatMessage> messages = begin_of(request);
    for (ChatMessage& message : read_chat_messages(object, key)) {
      if (message.role == "system" && !request.system.empty()) {
        throw DataError("found a system message and --system, expected one of them");
      }
      messages.push_back(std::move(message));
    }
    return generator.encode(messages, read_tools(object));
  } catch (const DataError& error) {
    throw DataError(cat(place, ": ", error.what()));
  }
}

// Line of --prompts waiting for its batch: its tokens, or its error.
struct Waiting {
  std::vector<int32_t> prompt;
  std::string problem;
};

// Prints one line for each prompt: its answer, or its error.
void print_answers(const std::vector<Waiting>& waiting, Generator& generator) {
  std::vector<std::vector<int32_t>> prompts;
  for (const Waiting& line : waiting) {
    if (line.problem.empty()) prompts.push_back(line.prompt);
  }
  const std::vector<std::string> texts =
      prompts.empty() ? std::vector<std::string>() : generator.answer(prompts);
  auto text = texts.begin();
  for (const Waiting& line : waiting) {
    const Json answer =
        line.problem.empty() ? Json{{"text", *text++}} : Json{{"error", line.problem}};
    std::printf("%s\n", answer.dump().c_str());
  }
  std::fflush(stdout);
}

// Prints an answer for each prompt of a file. An error in one line does not affect other lines; the
// end reports how many there were.
void answer_file(const Request& request, Generator& generator) {
  const std::vector<CorpusFile> files = list_corpus({request.prompts});
  BatchReader reader(files, [](std::string_view text, size_t) { return text.size(); });
  std::vector<Waiting> waiting;
  std::string first_problem;
  int64_t problems = 0, lines = 0;
  for (DocumentBatch batch; reader.next(batch);) {
    const CorpusFile& file = files[static_cast<size_t>(batch.begin.file)];
    for_each_line(batch, file, [&](std::string_view line, const std::string& place) {
      Waiting& next = waiting.emplace_back();
      ++lines;
      try {
        next.prompt = generator.fitting<DataError>(
            encode_line(std::string(line), place, request, generator), cat(place, ": the prompt"));
      } catch (const DataError& error) {
        next.problem = error.what();
        if (problems++ == 0) first_problem = next.problem;
      }
      if (std::ssize(waiting) < request.batch) return;
      print_answers(waiting, generator);
      waiting.clear();
    });
  }
  print_answers(waiting, generator);
  if (problems == 0) return;
  throw DataError(
      cat(problems, " of ", lines, " prompts have no answer; first error: ", first_problem));
}

}  // namespace

int run_generate(int argc, const char* const* argv) {
  Request request;
  ConfigSpec spec("shale generate", "continues a text, or answers a message, with a model");
  describe(spec, request);
  if (parse_or_print(spec, argc, argv)) return 0;
  if (!request.prompts.empty() && !request.prompt.empty()) {
    throw ConfigError("--prompt and --prompts exclude each other; use one of them");
  }
  if (!request.system.empty() && !request.chat) {
    throw ConfigError("--system needs --chat");
  }
  request.sampling.temperature = static_cast<float>(request.temperature);
  request.sampling.top_p = static_cast<float>(request.top_p);
  request.sampling.seed = static_cast<uint64_t>(request.seed);
  comm::World world(0, nullptr);
  TextModel model = load(request.model, world);
  Generator generator(request, model);
  if (!request.prompts.empty()) {
    answer_file(request, generator);
  } else if (request.chat && request.prompt.empty()) {
    converse(request, generator);
  } else if (request.chat) {
    std::vector<ChatMessage> messages = begin_of(request);
    messages.push_back({"user", request.prompt});
    generator.print(generator.fitting<ConfigError>(generator.encode(messages), "--prompt"));
  } else {
    const auto prompt =
        generator.fitting<ConfigError>(generator.encode(request.prompt), "--prompt");
    std::fputs(request.prompt.c_str(), stdout);
    generator.print(prompt);
  }
  return 0;
}

}  // namespace shale::models
