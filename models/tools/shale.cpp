// Main function of `shale`, a program with subcommands.
#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include "shale/base/failure.h"
#include "shale/models/tools/join/head.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"

namespace shale::models {
namespace {

constexpr std::array kTools = {
    Tool{"ckpt", "inspects, verifies and converts checkpoints", run_ckpt},
    Tool{"classify", "names the classes of pictures, with a model of train_image", run_classify},
    Tool{"config", "converts the options of other trainers", run_config},
    Tool{"doctor", "checks what this machine can run, and how to fix what is missing", run_doctor},
    Tool{"evaluate", "measures perplexity, or accuracy on a benchmark or images", run_evaluate},
    Tool{"generate", "continues a text, or answers a message, with a model", run_generate},
    Tool{"join", "starts ranks on this host for a run that another host leads", run_join},
    Tool{"metrics", "exports the metrics of a run as CSV or to MLflow", run_metrics},
    Tool{"plan", "plans memory and time of a run, without the machines", run_plan},
    Tool{"report", "writes an HTML report that compares runs", run_report},
    Tool{"run", "starts a training command, and restarts it when it fails", run_run},
    Tool{"tokenize", "converts text to token shards", run_tokenize},
    Tool{"tokenizer", "trains a BPE tokenizer", run_tokenizer},
    Tool{"trace", "prints where the time of a step goes, from a trace", run_trace},
    Tool{"train", "trains a model on one or more ranks, and restarts it when it fails", run_train},
    Tool{"watch", "shows the curves of a run in the terminal", run_watch},
};

constexpr std::string_view kExport = "shale ckpt export, or --export of train_lm";
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"pretrain", "shale train lm"},
    {"finetune", "shale train lm --init MODEL --task sft"},
    {"sft", "shale train lm --task sft"},
    {"dpo", "shale train lm --task dpo"},
    {"lora", "shale train lm --init MODEL --lora-rank 16"},
    {"export", kExport},
    {"convert", kExport},
    {"eval", "shale evaluate"},
    {"chat", "shale generate MODEL --chat"},
    {"infer", "shale generate"},
    {"sample", "shale generate"},
    {"predict", "shale generate, or shale classify for pictures"},
    {"launch", "shale train, shale run -- COMMAND, or mpirun"},
    {"csv", "shale metrics RUN --csv"},
    {"checkpoint", "shale ckpt"},
    {"inspect", "shale ckpt inspect"},
    {"import", "shale config import"},
    {"memory", "shale plan"},
    {"check", "shale doctor"},
    {"info", "shale doctor"},
};

constexpr ToolTable kTable = {
    .program = "shale",
    .summary = "tools for machines, data, runs and checkpoints",
    .what = "tool",
    .closing = "train_lm, train_image and train_diffusion train without a supervisor.",
    .tools = kTools,
    .synonyms = kSynonyms,
};

}  // namespace

}  // namespace shale::models

int main(int argc, char** argv) {
  try {
    if (argc > 0 &&
        std::string_view(argv[0]).ends_with(shale::cat("/", shale::models::kAgentName))) {
      return shale::models::run_agent(argc, argv);
    }
    return run_tool(shale::models::kTable, argc, argv);
  } catch (...) {
    const shale::Failure failure = shale::failure_of(std::current_exception());
    shale::print_error(failure.message);
    return static_cast<int>(failure.code);
  }
}
