#include "shale/models/training/run_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/spread.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/report/progress.h"
#include "shale/models/training/report/starts_file.h"
#include "shale/models/training/report/utc_time.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kEnd = '\0';  // separates paths, which cannot contain this character

std::string to_json(const RunDescription& run) {
  Json json = Json::object();
  for (const auto& [name, value] : run.values) json[name] = Json::parse(value, {}, name);
  return json.dump();
}

RunDescription description_of(const CheckpointManifest& manifest) {
  RunDescription run;
  // The reader of the manifest has checked that the configuration is an object.
  const Json json = Json::parse(manifest.config, {.max_bytes = kMaxManifestBytes}, "config");
  for (const auto& [name, value] : json.items()) run.values[name] = value.dump();
  return run;
}

// Returns the failure of a command as a problem that ranks exchange (comm/checkpoint/problems.h).
std::string packed(const std::string& failure) {
  return failure.empty() ? std::string() : cat(static_cast<int>(ExitCode::kDisk), " ", failure);
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kManifestName, error);
}

// Returns the checkpoints that a path names, newest first. The path is a checkpoint or a run.
std::vector<std::string> checkpoints_in(const std::string& path, const char* flag) {
  fs::path given = fs::path(path).lexically_normal();
  if (!given.has_filename()) given = given.parent_path();
  if (is_checkpoint(given)) return {given.string()};
  CheckpointFolder folder((given / "checkpoints").string());
  if (folder.steps().empty()) folder = CheckpointFolder(given.string());
  std::vector<std::string> found;
  for (const int64_t step : folder.steps()) found.push_back(folder.path_of(step));
  if (!found.empty()) return found;
  throw MissingInputError(cat(flag, " ", path, ": expected a checkpoint (a folder with ",
                              kManifestName, ") or the --out folder of a run with checkpoints"));
}

}  // namespace

RunCheckpoints::RunCheckpoints(const RunConfig& config, const comm::World& world,
                               comm::ProcessGroup& group, Timeline* timeline)
    : config_(config),
      group_(group.host()),
      timeline_(timeline),
      folder_((fs::path(config.out) / "checkpoints").string()),
      schedule_(config.save_every, config.save_minutes, Clock::now()) {
  owners_.is_owner = group_.rank() == 0;
  if (!config.no_save) {
    owners_ = find_owners(config.out, world, group_, !config.before_resume.empty());
    if (!owners_.is_shared) log_info("--out ", config.out, " is a separate folder on each host");
  }
  run_before_resume();
  const std::vector<int64_t> steps = steps_of_hosts();
  std::string found;
  if (group_.rank() == 0) {
    find_candidates(steps);
    for (const std::string& candidate : candidates_) found += candidate + kEnd;
    found += same_folder_ ? "same" : "other";
  }
  // All ranks try the candidates that rank 0 found, even if other ranks see other files.
  found = group_.broadcast_bytes(found, /*root=*/0, "checkpoints to resume from");
  candidates_.clear();
  size_t end = 0;
  for (size_t begin = 0; (end = found.find(kEnd, begin)) != found.npos; begin = end + 1) {
    candidates_.push_back(found.substr(begin, end - begin));
  }
  same_folder_ = found.ends_with("same");
}

// Polls, because the command may take longer than a collective may wait.
void RunCheckpoints::wait_for(const HostCommand* command) {
  for (;;) {
    int64_t busy = command != nullptr && command->is_busy() ? 1 : 0;
    group_.all_reduce_max(make_view(&busy, {1}), {.tag = "command of hosts"});
    if (busy == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void RunCheckpoints::run_before_resume() {
  if (config_.before_resume.empty() || config_.resume == "none") return;
  std::optional<HostCommand> command;
  if (owners_.is_owner) {
    command.emplace(HostCommand::Options{.flag = "--before-resume",
                                         .command = config_.before_resume,
                                         .out = config_.out,
                                         .log = file_in(config_.out, "before_resume.log")});
    command->start(0);
  }
  wait_for(command ? &*command : nullptr);
  comm::throw_problem(
      comm::first_problem(group_, "--before-resume", packed(command ? command->failure() : "")));
}

// Returns, on rank 0, the steps of the checkpoints in --out, newest first. If each host has its own
// --out folder, includes the checkpoints of all hosts.
std::vector<int64_t> RunCheckpoints::steps_of_hosts() {
  std::vector<int64_t> steps;
  if (owners_.is_owner) steps = CheckpointFolder(folder_).steps();
  if (owners_.is_shared) return steps;
  std::string text;
  for (const int64_t step : steps) text += cat(step, " ");
  std::set<int64_t, std::greater<>> all;
  for (const std::string& one : group_.gather_bytes(text, 0, "checkpoints of hosts")) {
    std::istringstream words(one);
    for (int64_t step = 0; words >> step;) all.insert(step);
  }
  return {all.begin(), all.end()};
}

void RunCheckpoints::find_candidates(const std::vector<int64_t>& steps) {
  const CheckpointFolder own(folder_);
  if (!steps.empty()) newest_ = steps.front();
  if (config_.resume == "auto") {
    for (const int64_t step : steps) candidates_.push_back(own.path_of(step));
    same_folder_ = true;
    return;
  }
  if (config_.resume == "none") {
    if (steps.empty() || config_.no_save) return;
    throw ConfigError(cat("--out ", config_.out, " has checkpoints, the newest of step ",
                          steps.front(),
                          "; use --resume auto to continue, or another "
                          "--out"));
  }
  candidates_ = checkpoints_in(config_.resume, "--resume");
  const fs::path newest = candidates_.front();
  std::error_code error;
  same_folder_ = fs::equivalent(newest.parent_path(), folder_, error);
  if (steps.empty() || (same_folder_ && newest.filename() == checkpoint_name(steps.front()))) {
    return;
  }
  throw ConfigError(cat("--out ", config_.out, " has a checkpoint of step ", steps.front(),
                        ", and --resume ", config_.resume,
                        " would begin another run beside it; "
                        "use another --out, or move newer checkpoints away"));
}

StepHistory RunCheckpoints::load_optimizer(const RunTensors& tensors) {
  std::string path;
  if (group_.rank() == 0) {
    path = checkpoints_in(config_.optimizer_from, "--keep-optimizer with --init").front();
  }
  path = group_.broadcast_bytes(path, /*root=*/0, "checkpoint with optimizer states");
  CheckpointReader reader = comm::open_checkpoint(group_, path);
  const RunDescription stored = description_of(reader.manifest());
  const auto was = stored.values.find("optimizer");
  const std::string& now = run_.values.at("optimizer");
  if (was != stored.values.end() && was->second != now) {
    throw ConfigError(cat("--keep-optimizer: --optimizer was ", was->second, " in ", path, ", is ",
                          now, " now; use the same, or leave out --keep-optimizer"));
  }
  comm::load_training_state(reader, tensors.parallel, tensors.optimizer);
  StepHistory history = read_position(reader.manifest(), path).history;
  history.earlier_updates += reader.manifest().step - history.skipped_steps;
  history.skipped_steps = history.outlier_steps = 0;
  log_info("loaded weights and optimizer states of ", path, ", made by ", history.earlier_updates,
           " updates");
  return history;
}

void RunCheckpoints::read(const std::string& checkpoint, const RunTensors& tensors,
                          RunPosition& position) {
  if (!owners_.is_shared) comm::spread_checkpoint(group_, checkpoint, owners_.is_owner);
  CheckpointReader reader = comm::open_checkpoint(group_, checkpoint);
  check_same_run(description_of(reader.manifest()), run_, checkpoint, reader.manifest().step);
  position = read_position(reader.manifest(), checkpoint);
  comm::load_training_state(reader, tensors.parallel, tensors.optimizer);
}

// Checks that checkpoints can be written, and that the disk has room for as many as there will be
// at a time: those of --keep and the one being written.
void RunCheckpoints::check_saves() {
  int64_t bytes = 0;
  const auto parts = comm::training_state(tensors_->parallel, tensors_->optimizer);
  const auto share = share_to_write(parts, tensors_->parallel.shared().groups);
  saver_->check(share);
  for (const auto& part : share) bytes += part.values.bytes();
  if (owners_.is_shared) {
    group_.all_reduce_sum(make_view(&bytes, {1}), {.tag = "checkpoint bytes"});
  } else {
    const std::string& mine = owners_.hosts[static_cast<size_t>(group_.rank())];
    const auto all = group_.all_gather_bytes(cat(bytes), "checkpoint bytes");
    bytes = 0;
    for (size_t r = 0; r < all.size(); ++r) {
      if (owners_.hosts[r] == mine) bytes += std::stoll(all[r]);
    }
  }
  if (!owners_.is_owner) return;
  const bool only_at_end = config_.save_every == 0 && config_.save_minutes == 0;
  int64_t at_once = only_at_end ? 1 : config_.keep + (config_.keep_best ? 2 : 1);
  if (config_.save_minutes == 0 && config_.save_every > 0) {
    at_once = std::min(at_once, (config_.steps - 1) / config_.save_every + 1);
  }
  const auto there = static_cast<int64_t>(CheckpointFolder(folder_).steps().size());
  check_room(config_.out, bytes, std::max<int64_t>(at_once - there, 1));
}

RunPosition RunCheckpoints::load(const RunTensors& tensors, RunDescription run) {
  run_ = std::move(run);
  tensors_.emplace(tensors);
  if (!config_.no_save) {
    saver_ = std::make_unique<comm::CheckpointSaver>(
        group_, tensors.context, folder_,
        comm::CheckpointSaverOptions{.keep = config_.keep,
                                     .spares = [this](int64_t step) { return spares(step); },
                                     .is_shared = owners_.is_shared,
                                     .commits = owners_.is_owner,
                                     .before_commit = [this] { sync_report(); },
                                     .committed = [this](int64_t step) { committed(step); },
                                     .timeline = timeline_});
    check_saves();
  }
  const RunPosition position = load_newest(tensors);
  best_step_ = position.validations.best_loss ? position.validations.best_step : 0;
  // Only now, because the checks above may still end this start.
  if (owners_.is_owner) CheckpointFolder(folder_).clean();
  if (owners_.is_owner && !config_.after_save.empty()) {
    after_save_ = std::make_unique<HostCommand>(
        HostCommand::Options{.flag = "--after-save",
                             .command = config_.after_save,
                             .out = config_.out,
                             .log = file_in(config_.out, "after_save.log")});
  }
  return position;
}

RunPosition RunCheckpoints::load_newest(const RunTensors& tensors) {
  if (candidates_.empty()) return {};
  std::string first;
  for (const std::string& candidate : candidates_) {
    RunPosition position;
    std::string problem;
    try {
      read(candidate, tensors, position);
    } catch (const DataError& error) {
      problem = error.what();
    } catch (const MissingInputError& error) {
      problem = error.what();
    }
    problem = comm::first_problem(group_, "checkpoint is valid", problem);
    if (problem.empty()) {
      newest_ = saved_step_ = durable_step_ = position.step;
      log_info("resumed from ", candidate, ", after ", position.step, " steps");
      return position;
    }
    if (first.empty()) first = problem;
    if (group_.rank() == 0) log_warning("checkpoint ", candidate, " is not usable: ", problem);
  }
  throw DataError(
      cat("resume: of ", candidates_.size(),
          " checkpoints, all are damaged or do not match; problem of the newest: ", first));
}

SaveNews RunCheckpoints::news() const {
  if (saver_ == nullptr) return {};
  return {.is_time = group_.rank() == 0 && schedule_.due_by_time(Clock::now()),
          .progress = saver_->progress()};
}

void RunCheckpoints::hear(const SaveNews& all, int64_t step) {
  if (saver_ == nullptr) return;
  try {
    saved(saver_->advance(all.progress));
  } catch (const DiskError& error) {
    failed(error);
  }
  is_time_ = is_time_ || (all.is_time && step > saved_step_);
}

// Records that the save of this step is on the disk. Does nothing without a step.
void RunCheckpoints::saved(std::optional<int64_t> step) {
  if (!step) return;
  durable_step_ = *step;
  const double before = schedule_.minutes();
  schedule_.written(Clock::now());
  if (std::abs(schedule_.minutes() - before) > 0.1 * before) {
    log_info("--save-minutes auto: ", format_real(static_cast<float>(schedule_.minutes())),
             ", as a failure is expected every ",
             format_duration(schedule_.between_failures_s(Clock::now())));
  }
  if (after_save_ == nullptr) return;
  const fs::path path = CheckpointFolder(folder_).path_of(*step);
  after_save_->start(
      *step, {"SHALE_CHECKPOINT=" + fs::absolute(path).string(), cat("SHALE_STEP=", *step)});
}

void RunCheckpoints::finish_save() {
  try {
    saved(saver_->finish());
  } catch (const DiskError& error) {
    failed(error);
  }
}

// Handles a failed save. It is tried again, because the state is still in memory and disks recover.
// All ranks give up when rank 0's clock says so.
void RunCheckpoints::failed(const DiskError& error) {
  saved_step_ = durable_step_;
  problem_ = error.what();
  int64_t is_hopeless = schedule_.is_hopeless(Clock::now()) ? 1 : 0;
  group_.broadcast(make_view(&is_hopeless, {1}), 0, {.tag = "failed save"});
  if (is_hopeless != 0) throw error;
  schedule_.failed(Clock::now());
  if (group_.rank() != 0) return;
  log_warning(error.what(), "; training goes on, and the save is tried again within ",
              schedule_.delay().count(), " min");
}

bool RunCheckpoints::due(int64_t step, int64_t best_step) const {
  return saver_ != nullptr && (schedule_.due_by_steps(step) || is_time_ ||
                               (config_.keep_best && step > 0 && best_step == step));
}

void RunCheckpoints::save(const RunPosition& position) {
  if (saver_ == nullptr || saved_step_ == position.step) return;
  const comm::CheckpointInfo info{
      .step = position.step,
      .state = to_json(position, owners_.is_shared ? std::vector<std::string>() : owners_.hosts),
      .config = to_json(run_),
      .attachments = run_.attachments};
  last_ = position;
  is_time_ = false;
  const auto begin = Clock::now();
  {
    const std::lock_guard lock(telling_);
    best_step_ = position.validations.best_loss ? position.validations.best_step : 0;
  }
  const auto parts = comm::training_state(tensors_->parallel, tensors_->optimizer);
  finish_save();
  try {
    if (schedule_.fails()) clean_up();
    saver_->save(info, share_to_write(parts, tensors_->parallel.shared().groups));
    saved_step_ = position.step;
  } catch (const DiskError& error) {
    failed(error);
  }
  schedule_.saved(begin, Clock::now());
}

void RunCheckpoints::keep_with(RunReport& report) {
  report_ = &report;
  if (!schedule_.is_auto()) return;
  const std::vector<RunStart> starts = read_starts(config_.out + "/starts.jsonl");
  const auto first = starts.empty() ? std::nullopt : utc_seconds(starts.front().time);
  const double elapsed_s = first ? utc_seconds(utc_now()).value_or(*first) - *first : 0;
  schedule_.set_failures(std::max<int64_t>(std::ssize(starts) - 1, 0), elapsed_s, group_.size());
}

// Removes leftovers of failed saves, to free disk space. Errors are only logged.
void RunCheckpoints::clean_up() {
  if (!owners_.is_owner) return;
  try {
    CheckpointFolder(folder_).clean();
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

void RunCheckpoints::finish() {
  if (saver_ == nullptr) return;
  constexpr int64_t kLongestPause_s = 4;
  for (int64_t pause_s = 1;; pause_s *= 2) {
    finish_save();
    if (!last_ || saved_step_ == last_->step) break;
    if (pause_s > kLongestPause_s) throw DiskError(problem_);
    std::this_thread::sleep_for(std::chrono::seconds(pause_s));
    save(*last_);
  }
  if (config_.after_save.empty()) return;
  wait_for(after_save_.get());
  if (after_save_ == nullptr || config_.keep == 0) return;
  try {
    // Deletes checkpoints that were kept because --after-save was reading them.
    CheckpointFolder(folder_).retire(config_.keep, durable_step_,
                                     [this](int64_t step) { return spares(step); });
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

void RunCheckpoints::check_after_save() {
  if (config_.after_save.empty()) return;
  const std::string problem = after_save_ == nullptr ? "" : after_save_->failure();
  comm::throw_problem(comm::first_problem(group_, "--after-save", packed(problem)));
}

// Returns true if the step's checkpoint must be kept. Runs on the writer thread.
bool RunCheckpoints::spares(int64_t step) {
  if (config_.keep_every > 0 && step % config_.keep_every == 0) return true;
  if (after_save_ != nullptr && after_save_->uses(step)) return true;
  const std::lock_guard lock(telling_);
  return config_.keep_best && step == best_step_;
}

// Syncs the report, so that a resumed run's report has all losses up to the checkpoint. Runs on the
// writer thread.
void RunCheckpoints::sync_report() {
  if (check_) check_();
  if (report_ != nullptr) report_->sync();
}

// Reports a committed checkpoint, on the writer thread, because the disk may be slow.
void RunCheckpoints::committed(int64_t step) {
  if (group_.rank() == 0) log_info("saved step ", step);
  {
    const std::lock_guard lock(telling_);
    newest_ = step;
  }
  tell(RunState::kRunning, step);
}

void RunCheckpoints::tell(RunState state, int64_t step, std::optional<int> exit_code,
                          const std::string& message) {
  if (group_.rank() != 0) return;
  const std::lock_guard lock(telling_);
  if (ended_) return;
  ended_ = state != RunState::kRunning;
  RunStatus status{.state = state,
                   .step = step,
                   .checkpoint_step = newest_,
                   .exit_code = exit_code,
                   .message = message};
  if (newest_) status.checkpoint = CheckpointFolder(folder_).path_of(*newest_);
  write_run_status(config_.out, status);
}

void RunCheckpoints::tell_failure(int64_t step, int exit_code,
                                  const std::string& message) noexcept {
  try {
    tell(RunState::kFailed, step, exit_code, message);
  } catch (const std::exception& error) {
    log_warning("status.json: ", error.what());
  }
}

}  // namespace shale::models
