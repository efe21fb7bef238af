#include "shale/kernels/simt/engine/options.h"

#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::emulator {
namespace {

Order parse_order(std::string_view text) {
  if (text == "fifo") return Order::kFifo;
  if (text == "lifo") return Order::kLifo;
  if (text == "random") return Order::kRandom;
  throw ConfigError(
      cat("SHALE_EMU_ORDER: found '", excerpt(text), "', expected fifo, lifo or random"));
}

uint64_t parse_count(const char* name, std::string_view text) {
  const auto count = parse_int(text);
  if (count && *count >= 0) return static_cast<uint64_t>(*count);
  throw ConfigError(cat(name, ": found '", excerpt(text), "', expected an integer from 0"));
}

void parse_track(std::string_view text, Options& options) {
  if (text != "0" && text != "1" && text != "tensors") {
    throw ConfigError(
        cat("SHALE_EMU_TRACK: found '", excerpt(text), "', expected 0, 1 or tensors"));
  }
  options.track = text != "0";
  options.exact = text == "tensors";
}

Options from_environment() {
  Options options;
  if (const char* text = std::getenv("SHALE_EMU_ORDER")) options.order = parse_order(text);
  const auto read_count = [](const char* name, auto& count) {
    if (const char* text = std::getenv(name)) {
      count = static_cast<std::remove_reference_t<decltype(count)>>(parse_count(name, text));
    }
  };
  read_count("SHALE_EMU_SEED", options.seed);
  read_count("SHALE_EMU_QUEUES", options.queues);
  if (const char* text = std::getenv("SHALE_EMU_TRACK")) parse_track(text, options);
  return options;
}

}  // namespace

const Options& default_options() {
  static const Options options = from_environment();
  return options;
}

}  // namespace shale::emulator
