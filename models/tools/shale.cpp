// Main function of `shale`, a program with subcommands.
#include <array>
#include <exception>

#include "shale/base/failure.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"

namespace shale::models {
namespace {

constexpr std::array kTools = {
    Tool{"ckpt", "looks at checkpoints, checks them, converts them", run_ckpt},
    Tool{"config", "makes options of those of other trainers", run_config},
    Tool{"doctor", "says what this machine offers to training, what is missing, and the way out",
         run_doctor},
    Tool{"evaluate", "says how well a model predicts a text, or answers questions", run_evaluate},
    Tool{"generate", "continues texts, or answers them, with a model", run_generate},
    Tool{"metrics", "prints the metrics of a run as CSV", run_metrics},
    Tool{"plan", "says what memory a run needs, without the machines", run_plan},
    Tool{"report", "writes a page about runs, with their curves over each other", run_report},
    Tool{"run", "starts a training command, and starts it again when it fails", run_run},
    Tool{"tokenize", "turns text into shards of tokens", run_tokenize},
    Tool{"tokenizer", "trains tokenizers", run_tokenizer},
    Tool{"trace", "says in words what a trace of some steps shows", run_trace},
    Tool{"watch", "shows the curves of a run in the terminal", run_watch},
};

constexpr ToolTable kTable = {
    .program = "shale",
    .summary = "tools for machines, data, runs and checkpoints",
    .what = "tool",
    .closing = "train_lm is a program of its own.",
    .tools = kTools,
};

}  // namespace

}  // namespace shale::models

int main(int argc, char** argv) {
  try {
    return run_tool(shale::models::kTable, argc, argv);
  } catch (...) {
    const shale::Failure failure = shale::failure_of(std::current_exception());
    shale::print_error(failure.message);
    return static_cast<int>(failure.code);
  }
}
