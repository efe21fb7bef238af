#include <optional>

#include "shale/base/error.h"
#include "shale/bench/support/report_rows.h"
#include "shale/bench/support/table.h"
#include "shale/kernels/attention.h"

namespace shale::bench {

double number(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0;
}

std::string word(const Json& row, const char* key) {
  if (!row.contains(key)) return "";
  return row[key].is_string() ? row[key].get<std::string>() : row[key].dump();
}

std::string launches(const Json& row) {
  const auto with = [&](const char* key, const char* text) {
    return row.contains(key) && row[key] == true ? text : "";
  };
  return cat(with("cuda_graph", ", CUDA graphs"), with("dependent_launch", ", dependent launch"));
}

std::string convolutions(const Json& document) {
  const bool without = document.contains("machine") && word(document["machine"], "cudnn") == "off";
  return without ? ", own convolutions" : "";
}

bool is_of_images(const Json& row) {
  return row.contains("pixels");
}

std::string speed_text(const Json& row) {
  const char* const item = is_of_images(row) ? "images" : "tokens";
  const double speed = number(row, cat(item, "_per_s").c_str());
  return cat(fixed(speed, speed < 100 ? 1 : 0), ' ', item, "/s");
}

bool is_program(const Json& document, const char* name) {
  return word(document, "program") == name;
}

std::map<std::string, Json> fastest_rivals(const std::vector<Json>& documents) {
  std::map<std::string, Json> fastest;
  for (const Json& document : documents) {
    if (!is_program(document, "peer_kernels")) continue;
    for (const Json& row : document["rows"]) {
      if (!row.contains("time_us")) continue;
      const auto [at, is_new] = fastest.try_emplace(word(row, "name"), row);
      if (!is_new && number(row, "time_us") < number(at->second, "time_us")) at->second = row;
    }
  }
  return fastest;
}

std::string name_for_rivals(const std::string& name) {
  for (const char* family : {"/hopper_", "/portable_", "/vendor_"}) {
    const size_t at = name.find(family);
    if (at == std::string::npos) continue;
    const std::string rest = name.substr(at + std::string_view(family).size());
    // "nt" is a GEMM with a transposed second operand. Other programs call it "square".
    return name.substr(0, at + 1) + (rest.starts_with("nt/") ? "square" + rest.substr(2) : rest);
  }
  return name;
}

namespace {

// A measurement of one program: microseconds of a kernel, or milliseconds of a step.
struct Side {
  std::string who;
  double time = 0;
  std::string speed{};
};

// Keeps the shorter time. Ignores a missing measurement.
void take_faster(std::optional<Side>& best, const Side& other) {
  if (other.time > 0 && (!best || other.time < best->time)) best = other;
}

// One row of the table of figures. It takes the first of Shale's cases that was measured.
struct KernelFigure {
  std::string what;
  std::vector<std::string> ours;
  std::vector<std::string> rivals;  // cases of other programs, or of Shale, to compare with
};

std::vector<KernelFigure> kernel_figures() {
  std::vector<KernelFigure> figures;
  struct Heads {
    int size, tokens;
  };
  for (const auto& [size, tokens] : {Heads{128, 8192}, Heads{64, 1024}, Heads{64, 8192}}) {
    for (const char* slot : {"attention_fwd", "attention_bwd"}) {
      const std::string shape = cat("/d", size, "/t", tokens, "/bf16");
      const bool forward = slot == kernels::attention_fwd.name();
      figures.push_back(
          {cat("attention, ", forward ? "forward" : "backward", ", heads of ", size, ", T ", tokens,
               ", B ", 16384 / tokens, ", H ", 2048 / size, ", causal"),
           {cat(slot, "/hopper_causal", shape), cat(slot, "/causal", shape)},
           {cat(slot, "/causal", shape)}});
    }
  }
  figures.push_back({"GEMM of 8192 x 8192 x 8192",
                     {"gemm/hopper_nt/8192/bf16", "gemm/square/8192/bf16"},
                     {"gemm/square/8192/bf16"}});
  for (const int width : {768, 1600, 4096}) {
    const std::string shape = cat("ffn/d", width, "/t8192/bf16");
    figures.push_back({cat("FFN, forward and backward, d ", width, ", 8192 tokens"),
                       {"gemm/hopper_" + shape, "gemm/" + shape},
                       {"gemm/" + shape, "gemm/vendor_" + shape}});
  }
  return figures;
}

std::string tera(const Json& row) {
  const double us = number(row, "time_us");
  return us > 0 ? fixed(number(row, "gflop") / us * 1e3, 1) + " TFLOP/s" : "";
}

void add_row(Table& table, const std::string& what, const char* unit,
             const std::optional<Side>& ours, const std::optional<Side>& rival) {
  const auto time = [&](const std::optional<Side>& side) {
    return side ? short_number(side->time) + " " + unit : std::string("not measured");
  };
  table.add({what, ours ? ours->who : "", time(ours), ours ? ours->speed : "",
             rival ? rival->who : "", time(rival), rival ? rival->speed : "",
             ours && rival ? percent(rival->time / ours->time) : ""});
}

void add_kernels(Table& table, const std::map<std::string, Json>& cases,
                 const std::map<std::string, Json>& rivals) {
  for (const KernelFigure& figure : kernel_figures()) {
    std::optional<Side> ours, rival;
    for (const std::string& name : figure.ours) {
      const auto found = cases.find(name);
      if (found == cases.end()) continue;
      const Json& row = found->second;
      ours = Side{name, number(row, "time_us"), tera(row)};
      const double vendor_us = number(row, "vendor_us");
      take_faster(
          rival,
          {"cuBLASLt", vendor_us,
           vendor_us > 0 ? fixed(number(row, "gflop") / vendor_us * 1e3, 1) + " TFLOP/s" : ""});
      break;
    }
    for (const std::string& name : figure.rivals) {
      if (const auto found = rivals.find(name); found != rivals.end()) {
        take_faster(rival, {word(found->second, "impl"), number(found->second, "time_us"),
                            tera(found->second)});
      }
      const auto separate = cases.find(name);
      if (separate != cases.end() && word(separate->second, "family") == "vendor") {
        take_faster(rival, {"cuBLASLt, epilogues apart", number(separate->second, "time_us"),
                            tera(separate->second)});
      }
    }
    add_row(table, figure.what, "us", ours, rival);
  }
}

// A training step that both Shale and PyTorch ran. It has `batch` sequences of `size` tokens, or
// images with an edge of `size` pixels.
struct StepFigure {
  const char* model;
  const char* what;
  const char* kind;  // "kind" in bench_train's rows
  const char* size_key;
  double size, batch;
};

constexpr StepFigure kStepFigures[] = {
    {"gpt2-124m", "T 1024, 131072 tokens", "step", "seq_len", 1024, 128},
    {"gpt2-1558m", "T 1024, 131072 tokens", "step", "seq_len", 1024, 128},
    {"resnet50", "224 pixels, 128 images", "image_step", "pixels", 224, 128},
    {"vit-b16", "224 pixels, 128 images", "image_step", "pixels", 224, 128}};

// Adds Shale's steps on a GPU and PyTorch's, the fastest of each.
void add_steps(Table& table, const std::vector<Json>& documents) {
  for (const StepFigure& figure : kStepFigures) {
    std::optional<Side> ours, rival;
    for (const Json& document : documents) {
      for (const Json& row : document["rows"]) {
        if (word(row, "model") != figure.model || number(row, figure.size_key) != figure.size ||
            number(row, "global_batch") != figure.batch) {
          continue;
        }
        const double ms = number(row, "step_ms");
        if (is_program(document, "peer_gpt2") || is_program(document, "peer_images")) {
          take_faster(rival, {word(row, "impl") + " " + word(row, "mode"), ms, speed_text(row)});
        } else if (word(row, "kind") == figure.kind && word(row, "device").starts_with("cuda")) {
          take_faster(
              ours, {cat("bench_train ", word(row, "dtype"), launches(row), convolutions(document)),
                     ms, speed_text(row)});
        }
      }
    }
    add_row(table, cat("training step, ", figure.model, ", ", figure.what), "ms", ours, rival);
  }
}

}  // namespace

std::string figures_section(const std::vector<Json>& documents) {
  std::map<std::string, Json> cases;
  for (const Json& document : documents) {
    if (!is_program(document, "bench_kernels") ||
        !word(document["options"], "device").starts_with("cuda")) {
      continue;
    }
    for (const Json& row : document["rows"]) {
      if (row.contains("time_us")) cases[word(row, "name")] = row;
    }
  }
  if (cases.empty()) return "";
  Table table(
      {"figure", "ours", "time", "speed", "fastest rival", "time", "speed", "rival / ours"});
  add_kernels(table, cases, fastest_rivals(documents));
  add_steps(table, documents);
  return "\n## Compared with other libraries\n\nAbove 100%: Shale is faster. cuBLASLt's FFN uses "
         "its own epilogues or separate kernels, whichever is faster.\n\n" +
         table.markdown();
}

}  // namespace shale::bench
