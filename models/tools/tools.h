#pragma once

namespace shale::models {

// Tools of the program `shale`. To add one: models/tools/x.cpp, a function below, a line in the
// table of models/tools/shale.cpp. Each takes the arguments after "shale"
// (models/tools/tool_table.h).

int run_ckpt(int argc, const char* const* argv);
int run_classify(int argc, const char* const* argv);
int run_config(int argc, const char* const* argv);
int run_doctor(int argc, const char* const* argv);
int run_evaluate(int argc, const char* const* argv);
int run_generate(int argc, const char* const* argv);
int run_join(int argc, const char* const* argv);
int run_metrics(int argc, const char* const* argv);
int run_plan(int argc, const char* const* argv);
int run_report(int argc, const char* const* argv);
int run_run(int argc, const char* const* argv);
int run_tokenize(int argc, const char* const* argv);
int run_tokenizer(int argc, const char* const* argv);
int run_trace(int argc, const char* const* argv);
int run_train(int argc, const char* const* argv);
int run_watch(int argc, const char* const* argv);

}  // namespace shale::models
