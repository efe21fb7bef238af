#include "shale/bench/support/report.h"

#include <algorithm>
#include <map>
#include <optional>

#include "shale/base/text.h"
#include "shale/bench/support/report_rows.h"
#include "shale/bench/support/step_breakdown.h"
#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

int stage(const Json& step) {
  return static_cast<int>(number(step, "zero"));
}

// Old benchmarks ran only on the CPU, and their rows have no "device".
bool on_other_device(const Json& step) {
  return step.contains("device") && word(step, "device") != "cpu";
}

// A training run: its JSON document, the row of its whole step, and its configuration.
struct TrainRun {
  const Json* document = nullptr;
  Json step;
  std::string name;

  bool is(const char* dtype, int ranks, int threads, int64_t global_batch, int zero) const {
    return !on_other_device(step) && word(step, "model") == "gpt2-124m" &&
           word(step, "dtype") == dtype && number(step, "ranks") == ranks &&
           number(step, "threads") == threads && number(step, "global_batch") == global_batch &&
           stage(step) == zero;
  }
  double tokens_per_s() const { return number(step, "tokens_per_s"); }
};

std::string configuration(const Json& step) {
  return cat(word(step, "model"), ' ', word(step, "dtype"),
             on_other_device(step) ? " on " + word(step, "device") : "",
             is_of_images(step) ? cat(", ", word(step, "pixels"), " pixels")
                                : ", T " + word(step, "seq_len"),
             ", micro-batch ", word(step, "micro_batch"), ", batch ", word(step, "global_batch"),
             ", ", word(step, "ranks"), " x ", word(step, "threads"),
             stage(step) > 0 ? cat(", zero ", stage(step)) : "", launches(step));
}

// Returns the fastest run of each configuration, in the order of the documents.
std::vector<TrainRun> train_runs(const std::vector<Json>& documents) {
  std::vector<TrainRun> runs;
  for (const Json& document : documents) {
    if (!is_program(document, "bench_train")) continue;
    for (const Json& row : document["rows"]) {
      if (word(row, "kind") != "step" && word(row, "kind") != "image_step") continue;
      const TrainRun found = {&document, row, configuration(row) + convolutions(document)};
      const auto same = std::find_if(runs.begin(), runs.end(),
                                     [&](const TrainRun& run) { return run.name == found.name; });
      if (same == runs.end()) {
        runs.push_back(found);
      } else if (number(row, "step_ms") < number(same->step, "step_ms")) {
        *same = found;
      }
    }
  }
  return runs;
}

std::string machine_section(const std::vector<Json>& documents, const ReportFacts& facts) {
  Table table({"", "measured on"});
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) table.add({what, value});
  };
  for (const Json& document : documents) {
    if (!document.contains("machine")) continue;
    const Json& machine = document["machine"];
    add("CPU", cat(word(machine, "cpu"), ", ", word(machine, "cores"), " CPUs"));
    add("memory", format_bytes(number(machine, "memory_bytes")));
    add("GPU", word(machine, "gpu"));
    add("CUDA", word(machine, "cuda"));
    add("last-level cache", format_bytes(number(machine, "cache_bytes")));
    add("system", word(machine, "system"));
    add("compiler", word(machine, "compiler"));
    add("oneDNN", word(machine, "onednn"));
    add("MPI", facts.mpi);
    add("date", word(machine, "date"));
    break;
  }
  add("commit", facts.commit);
  double load = 0;
  for (const Json& document : documents) {
    if (document.contains("machine")) load = std::max(load, number(document["machine"], "load"));
  }
  // Earlier programs may have left a load of one for each thread that they used.
  add("highest load before a program", fixed(load, 1));
  return table.markdown();
}

std::optional<TrainRun> find_run(const std::vector<TrainRun>& runs, const char* dtype, int ranks,
                                 int threads, int64_t batch, int zero = 0) {
  std::optional<TrainRun> best;
  for (const TrainRun& run : runs) {
    if (!run.is(dtype, ranks, threads, batch, zero)) continue;
    if (!best || run.tokens_per_s() > best->tokens_per_s()) best = run;
  }
  return best;
}

double memory_ratio(const Json& step) {
  return number(step["memory"], "peak_reserved") / number(step["memory"], "sum");
}

// Returns the rows of bench_train --breakdown for whole steps.
std::vector<Json> broken_down_steps(const std::vector<Json>& documents) {
  std::vector<Json> steps;
  for (const Json& document : documents) {
    for (const Json& row : document["rows"]) {
      if (word(row, "kind") == "breakdown_step") steps.push_back(row);
    }
  }
  return steps;
}

// Lists the project's performance targets for GPT-2 124M.
std::string targets_section(const std::vector<TrainRun>& runs, const std::vector<Json>& documents) {
  Table table({"target", "wanted", "measured", ""});
  const auto add = [&](const std::string& what, double wanted, double measured,
                       bool at_most = false) {
    const bool met = at_most ? measured <= wanted : measured >= wanted;
    table.add({what, cat(at_most ? "at most " : "at least ", fixed(wanted, 2)), fixed(measured, 3),
               met ? "met" : "missed"});
  };
  const auto f32 = find_run(runs, "fp32", 1, 2, 4), bf16 = find_run(runs, "bf16", 1, 2, 4);
  const auto one = find_run(runs, "fp32", 1, 2, 8), two = find_run(runs, "fp32", 2, 1, 8);
  if (f32) {
    add("fp32 step: time of its GEMMs alone / time of the step", 0.80,
        number(f32->step, "floor_share"));
    add("fp32 step: peak memory / sum of its parts", 1.10, memory_ratio(f32->step), true);
  }
  if (f32 && bf16) {
    add("bf16 tokens/s / fp32 tokens/s", 1.6, bf16->tokens_per_s() / f32->tokens_per_s());
    add("bf16 step: peak memory / sum of its parts", 1.10, memory_ratio(bf16->step), true);
  }
  if (one && two) {
    add("2 ranks x 1 thread / 1 rank x 2 threads, tokens/s at batch 8", 0.95,
        two->tokens_per_s() / one->tokens_per_s());
  }
  for (const int zero : {1, 2, 3}) {
    const auto sharded = find_run(runs, "fp32", 2, 1, 8, zero);
    if (!two || !sharded) continue;
    // ZeRO-1 and 2 send as much as ZeRO-0, ZeRO-3 sends 1.5 times as much.
    add(cat("2 ranks, zero ", zero, ": step time / that of zero 0"), zero == 3 ? 1.05 : 1.0,
        number(sharded->step, "step_ms") / number(two->step, "step_ms"), true);
    add(cat("2 ranks, zero ", zero, ": exposed communication / step"), 0.05,
        number(sharded->step, "exposed_comm_ms") / number(sharded->step, "step_ms"), true);
  }
  for (const Json& step : broken_down_steps(documents)) {
    if (word(step, "model") != "gpt2-124m") continue;
    add(cat(word(step, "dtype"), " step",
            on_other_device(step) ? " on " + word(step, "device") : "",
            ": time / sum of its parts alone"),
        kMostOverParts, number(step, "step_over_alone"), true);
  }
  return table.empty() ? "" : "\n## Targets\n\n" + table.markdown();
}

std::string training_section(const std::vector<TrainRun>& runs) {
  if (runs.empty()) return "";
  Table table({"step (ranks x threads)", "ms", "min ms", "speed", "GEMMs alone, oneDNN, ms",
               "share", "exposed comm ms", "busy", "peak memory", "/ parts"});
  for (const TrainRun& run : runs) {
    const Json& s = run.step;
    const bool floor = s.contains("floor_ms");
    table.add({run.name, fixed(number(s, "step_ms"), 1), fixed(number(s, "step_ms_min"), 1),
               speed_text(s), floor ? fixed(number(s, "floor_ms"), 1) : "",
               floor ? percent(number(s, "floor_share")) : "",
               fixed(number(s, "exposed_comm_ms"), 2), fixed(number(s, "cpu_share"), 2),
               format_bytes(number(s["memory"], "peak_reserved")), fixed(memory_ratio(s), 3)});
  }
  return "\n## Training steps\n\nA step and its GEMMs alone ran alternately; the share is the "
         "GEMMs' time divided by the step's time, as the median over pairs. Busy: processor time / "
         "(threads x time).\n\n" +
         table.markdown();
}

std::string peers_section(const std::vector<Json>& documents) {
  Table table({"program", "model", "mode", "dtype", "threads", "T or pixels", "micro-batch",
               "step ms", "speed"});
  std::string errors;
  for (const Json& document : documents) {
    for (const Json& row : document["rows"]) {
      if (!row.contains("mode")) continue;
      if (row.contains("error")) {
        errors +=
            cat("* ", word(row, "impl"), " ", word(row, "mode"), ": ", word(row, "error"), "\n");
      }
      if (!row.contains("step_ms")) continue;
      table.add({word(row, "impl"), word(row, "model"), word(row, "mode"), word(row, "dtype"),
                 word(row, "threads"), word(row, is_of_images(row) ? "pixels" : "seq_len"),
                 word(row, "micro_batch"), fixed(number(row, "step_ms"), 1), speed_text(row)});
    }
  }
  if (table.empty() && errors.empty()) return "";
  return "\n## The same step in other programs\n" + (table.empty() ? "" : "\n" + table.markdown()) +
         (errors.empty() ? "" : "\nFailed:\n\n" + errors);
}

std::string rate(double giga, double ms) {
  return giga > 0 ? fixed(giga / ms * 1e3, 1) : "";
}

// Breaks down the time of one run.
std::string breakdown(const TrainRun& run) {
  constexpr double kSmallestShare = 0.001;
  Table parts({"part", "calls", "ms", "of the step", "GFLOP/s", "GB/s"});
  Table products({"GEMM (m x n x k)", "calls", "ms", "GFLOP/s", "oneDNN ms", "oneDNN / ours"});
  for (const Json& row : (*run.document)["rows"]) {
    const double ms = number(row, "ms");
    if (word(row, "kind") == "part" && number(row, "share") >= kSmallestShare) {
      const double calls = number(row, "calls");
      parts.add({word(row, "phase") + " " + word(row, "name"), calls > 0 ? fixed(calls, 0) : "",
                 fixed(ms, 2), percent(number(row, "share")), rate(number(row, "gflop"), ms),
                 rate(number(row, "gbytes"), ms)});
    } else if (word(row, "kind") == "gemm") {
      const double vendor = number(row, "vendor_ms");
      products.add({word(row, "name"), fixed(number(row, "calls"), 0), fixed(ms, 2),
                    rate(number(row, "gflop"), ms), vendor > 0 ? fixed(vendor, 2) : "",
                    vendor > 0 ? percent(vendor / ms) : ""});
    }
  }
  if (parts.empty()) return "";
  return "\n### " + run.name + "\n\n" + parts.markdown() + "\n" + products.markdown();
}

// Formats the tables of bench_train --breakdown.
std::string part_breakdowns(const std::vector<Json>& documents) {
  std::string out;
  for (const Json& document : documents) {
    if (!is_program(document, "bench_train")) continue;
    Table table({"part", "calls", "ms in step", "ms alone", "step / alone", "floor ms",
                 "floor / step", "of the step"});
    Json step;
    for (const Json& row : document["rows"]) {
      if (word(row, "kind") == "breakdown_step") step = row;
      if (word(row, "kind") != "breakdown") continue;
      const double in_step = number(row, "ms"), alone = number(row, "alone_ms");
      const double floor = number(row, "floor_ms");
      table.add({word(row, "name"), alone > 0 ? fixed(number(row, "calls"), 0) : "",
                 fixed(in_step, 2), alone > 0 ? fixed(alone, 2) : "",
                 alone > 0 ? fixed(in_step / alone, 2) : "", floor > 0 ? fixed(floor, 2) : "",
                 floor > 0 ? percent(floor / in_step) : "", percent(number(row, "share"))});
    }
    if (step.is_null()) continue;
    out +=
        cat("\n### Parts, ", configuration(step), "\n\nA step of ",
            fixed(number(step, "step_ms"), 1), " ms is ", fixed(number(step, "step_over_alone"), 3),
            " times the sum of its parts alone (target: at most 1.08). Alone: every call "
            "repeated several times in a row on the same operands. Floor: time of the FLOP at "
            "the library's best rate, or of the bytes at the memory bandwidth.\n\n",
            table.markdown());
  }
  return out;
}

std::string kernels_table(const Json& document, const std::map<std::string, Json>& rivals) {
  const Json& options = document["options"];
  const std::string vendor = options.contains("vendor") ? word(options, "vendor") : "oneDNN";
  std::vector<std::string> titles = {"kernel",  "median us",    "min us",          "speed",
                                     "of peak", vendor + " us", vendor + " / ours"};
  if (!rivals.empty()) titles.insert(titles.end(), {"fastest rival", "us", "rival / ours"});
  Table table(titles);
  std::string errors;
  for (const Json& row : document["rows"]) {
    if (row.contains("error")) {
      errors += cat("* ", word(row, "name"), ": ", word(row, "error"), "\n");
      continue;
    }
    const bool has_vendor = row.contains("vendor_us");
    const double time_us = number(row, "time_us");
    std::vector<std::string> cells = {
        word(row, "name"),
        short_number(time_us),
        short_number(number(row, "time_us_min")),
        short_number(number(row, "speed")) + " " + word(row, "unit"),
        row.contains("of_peak") ? percent(number(row, "of_peak")) : "",
        has_vendor ? short_number(number(row, "vendor_us")) : "",
        has_vendor ? percent(number(row, "vendor_over_ours")) : ""};
    if (!rivals.empty()) {
      const auto rival = rivals.find(name_for_rivals(word(row, "name")));
      const bool found = rival != rivals.end();
      const double rival_us = found ? number(rival->second, "time_us") : 0;
      cells.insert(cells.end(),
                   {found ? word(rival->second, "impl") : "", found ? short_number(rival_us) : "",
                    found ? percent(rival_us / time_us) : ""});
    }
    table.add(std::move(cells));
  }
  return table.markdown() + (errors.empty() ? "" : "\nFailed:\n\n" + errors);
}

std::string kernels_section(const std::vector<Json>& documents) {
  std::string out;
  const auto rivals = fastest_rivals(documents);
  for (const Json& document : documents) {
    if (!is_program(document, "bench_kernels")) continue;
    const Json& options = document["options"];
    const bool on_gpu = word(options, "device").compare(0, 4, "cuda") == 0;
    out += "\n## Kernels\n\n";
    Table peaks({"peak", "measured first"});
    for (const auto& [name, value] : options["peaks"].items()) {
      peaks.add({name, fixed(value.get<double>(), 1)});
    }
    out +=
        cat(peaks.markdown(), "\n", on_gpu ? "On the GPU" : word(options, "threads") + " threads",
            convolutions(document),
            "; operands come from memory. Of peak: the time of the FLOP at the library's peak "
            "rate, or of the bytes at the memory bandwidth, divided by the kernel's time.\n\n",
            kernels_table(document, on_gpu ? rivals : std::map<std::string, Json>()));
  }
  return out;
}

// Makes a line per collective and size, for Shale on shared memory ("group") and on other memory.
std::string collectives_section(const std::vector<Json>& documents) {
  struct Line {
    std::string name;
    double group_ms = 0, any_ms = 0, mpi_ms = 0;
  };
  std::vector<Line> lines;
  for (const Json& document : documents) {
    for (const Json& row : document["rows"]) {
      if (!row.contains("op") || !row.contains("impl")) continue;
      const std::string name = cat(word(row, "op"), ", ", word(row, "ranks"), " ranks, ",
                                   format_bytes(number(row, "bytes")));
      auto line = std::find_if(lines.begin(), lines.end(),
                               [&](const Line& entry) { return entry.name == name; });
      if (line == lines.end()) line = lines.insert(line, {.name = name});
      const bool any = row.contains("memory") && word(row, "memory") == "any";
      (word(row, "impl") != "shale" ? line->mpi_ms
       : any                        ? line->any_ms
                                    : line->group_ms) = number(row, "time_ms");
    }
  }
  if (lines.empty()) return "";
  Table table(
      {"collective", "group memory ms", "any memory ms", "MPI ms", "MPI / group", "MPI / any"});
  const auto time = [](double ms) { return ms > 0 ? short_number(ms) : ""; };
  const auto ratio = [](double mpi, double ours) {
    return mpi > 0 && ours > 0 ? fixed(mpi / ours, 2) : "";
  };
  for (const Line& line : lines) {
    table.add({line.name, time(line.group_ms), time(line.any_ms), time(line.mpi_ms),
               ratio(line.mpi_ms, line.group_ms), ratio(line.mpi_ms, line.any_ms)});
  }
  return "\n## Collectives\n\n" + table.markdown();
}

}  // namespace

std::string results_page(const std::vector<Json>& documents, const ReportFacts& facts) {
  const std::vector<TrainRun> runs = train_runs(documents);
  std::string page = "# Benchmark results\n\n" + machine_section(documents, facts);
  page += figures_section(documents) + rivals_section(documents);
  page += predictions_section(documents);
  page += targets_section(runs, documents) + training_section(runs);
  page += peers_section(documents);
  std::string times = part_breakdowns(documents);
  for (const TrainRun& run : runs) times += breakdown(run);
  if (!times.empty()) page += "\n## Where the time of a step goes\n" + times;
  return page + collectives_section(documents) + kernels_section(documents);
}

}  // namespace shale::bench
