#include "client/common.h"

#include <google/protobuf/util/json_util.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "client/flag_checks.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr int kWakeSignal = SIGUSR1;  // ends the signal thread
// A second signal so soon is the same press of a key, or the same hand: a terminal and coreutils' timeout signal a
// process and then its group, or the other way round.
constexpr auto kSamePress = std::chrono::milliseconds(100);

sigset_t interrupt_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, kWakeSignal);
  return signals;
}

}  // namespace

void RequestFlags::add_to(CLI::App& app) {
  CLI::Option* const json = app.get_option("--json");
  app.add_option("--model", model, "model name (default: the one served)")->check(utf8());
  app.add_option("--temperature", temperature, "0: greedy (server's default 1)");
  app.add_option("--top-k", top_k, "keep the k best tokens (0: all)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  app.add_option("--top-p", top_p, "keep the best tokens with this probability together");
  app.add_option("--min-p", min_p, "keep tokens of at least this share of the best one's probability");
  app.add_option("--repetition-penalty", repetition_penalty, "above 1: tokens of prompt and output are less likely");
  app.add_option("--presence-penalty", presence_penalty, "subtracted once from tokens of the output");
  app.add_option("--frequency-penalty", frequency_penalty, "subtracted for each time that a token is in the output");
  app.add_option("--seed", seed, "the same seed gives the same answer")->check(not_negative());
  app.add_option("--max-tokens", max_tokens, "output tokens at most (default: the rest of the context)");
  app.add_option("--stop", stop, "end before this text; may be given several times")
      ->allow_extra_args(false)
      ->check(utf8());
  app.add_option("--n", n, "number of answers");
  app.add_option("--logprobs", logprobs, "log probabilities of this many best tokens (in --json)")->needs(json);
  app.add_option("--prompt-logprobs", prompt_logprobs, "likewise for the tokens of the prompt (in --json)")
      ->needs(json);
  app.add_flag("--echo", echo, "the prompt's text in front of the answer's");
  app.add_flag("--ignore-eos", ignore_eos, "end tokens are ordinary tokens");
  app.add_option("--time-limit-ms", time_limit_ms, "end after this time");
  app.add_option("--tenant", tenant, "whose share of the server this takes")->check(utf8());
  app.add_option("--salt", salt, "share cached prefixes only with requests of this salt")->check(utf8());
  app.add_option("--pin-ms", pin_ms, "hold the prompt's blocks in the server's cache for this long");
  app.add_flag("--no-cache", no_cache, "neither read nor fill the prefix cache");
}

template <class Request>
void RequestFlags::apply(Request& request) const {
  v1::SamplingOptions& sampling = *request.mutable_sampling();
  v1::StoppingOptions& stopping = *request.mutable_stopping();
  request.set_model(model);
  if (temperature) sampling.set_temperature(*temperature);
  if (top_k) sampling.set_top_k(*top_k);
  if (top_p) sampling.set_top_p(*top_p);
  if (min_p) sampling.set_min_p(*min_p);
  if (repetition_penalty) sampling.set_repetition_penalty(*repetition_penalty);
  if (presence_penalty) sampling.set_presence_penalty(*presence_penalty);
  if (frequency_penalty) sampling.set_frequency_penalty(*frequency_penalty);
  if (seed) sampling.set_seed(*seed);
  if (max_tokens) stopping.set_max_tokens(*max_tokens);
  for (const std::string& text : stop) stopping.add_stop(text);
  stopping.set_ignore_eos(ignore_eos);
  if (n) request.set_n(*n);
  if (logprobs) request.set_logprobs(*logprobs);
  if (prompt_logprobs) request.set_prompt_logprobs(*prompt_logprobs);
  request.set_echo(echo);
  request.set_time_limit_ms(time_limit_ms);
  request.set_tenant(tenant);
  if (salt.empty() && pin_ms == 0 && !no_cache) return;
  v1::CacheOptions& cache = *request.mutable_cache();
  cache.set_salt(salt);
  cache.set_pin_ms(pin_ms);
  cache.set_bypass(no_cache);
}

template void RequestFlags::apply(v1::GenerateRequest&) const;
template void RequestFlags::apply(v1::ChatRequest&) const;

Interrupts::Interrupts() {
  const sigset_t signals = interrupt_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { watch(); });
}

Interrupts::~Interrupts() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  pthread_kill(thread_.native_handle(), kWakeSignal);
  thread_.join();
}

void Interrupts::on_interrupt(Callback callback) {
  const std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
  count_ = 0;
}

void Interrupts::watch() {
  const sigset_t signals = interrupt_signals();
  int last = 0;  // the signal that counted
  std::chrono::steady_clock::time_point last_at;
  while (true) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    const std::lock_guard lock(mutex_);
    if (quit_) return;
    if (number == kWakeSignal) continue;  // not ours
    const auto now = std::chrono::steady_clock::now();
    if (number == last && now - last_at < kSamePress) continue;
    last = number;
    last_at = now;
    ++count_;
    if (callback_) {
      callback_(number, count_);
    } else {
      _exit(128 + number);
    }
  }
}

std::string_view code_name(grpc::StatusCode code) {
  static constexpr std::string_view kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

std::string short_name(v1::FinishReason reason) {
  // One of a newer server's has no name here.
  const std::string& name = v1::FinishReason_Name(reason);
  return name.empty() ? std::to_string(reason) : name.substr(std::string_view("FINISH_REASON_").size());
}

void print_text(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string shown = terminal ? printable(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
}

void print_stats(const v1::GenerateResponse& response) {
  const v1::Usage& usage = response.usage();
  const v1::Timings& timings = response.timings();
  const double decode_tokens = static_cast<double>(usage.output_tokens() - 1);
  const double rate = timings.decode_ms() > 0 && decode_tokens > 0 ? decode_tokens / timings.decode_ms() * 1000 : 0;
  std::string ends;
  for (const v1::Output& output : response.outputs()) ends += " " + short_name(output.finish_reason());
  std::fprintf(stderr,
               "prompt %lld tokens (%lld cached, %lld pinned) in %d chunks, output %lld tokens, seed %llu, end:%s\n"
               "queue %.1f ms, prefill %.1f ms, first token %.1f ms, decode %.1f ms (%.1f tokens/s)\n"
               "peak %d blocks, %d preemptions, %lld tokens recomputed\n",
               static_cast<long long>(usage.prompt_tokens()), static_cast<long long>(usage.cached_tokens()),
               static_cast<long long>(usage.pinned_tokens()), timings.num_chunks(),
               static_cast<long long>(usage.output_tokens()), static_cast<unsigned long long>(response.seed()),
               ends.c_str(), timings.queue_ms(), timings.prefill_ms(), timings.ttft_ms(), timings.decode_ms(), rate,
               timings.peak_blocks(), timings.num_preemptions(), static_cast<long long>(timings.recomputed_tokens()));
}

void print_cut(const v1::GenerateResponse& response) {
  const auto is_cut = [](const v1::Output& output) { return output.finish_reason() == v1::FINISH_REASON_DEADLINE; };
  if (std::none_of(response.outputs().begin(), response.outputs().end(), is_cut)) return;
  std::fprintf(stderr, "folio-client: the time limit (--time-limit-ms) ended the answer before its own end\n");
}

void join(const v1::GenerateChunk& chunk, v1::GenerateResponse& response) {
  if (chunk.has_prompt_info()) response.mutable_prompt_info()->MergeFrom(chunk.prompt_info());
  for (const v1::Output& part : chunk.outputs()) {
    while (response.outputs_size() <= part.index()) {
      const int index = response.outputs_size();
      response.add_outputs()->set_index(index);
    }
    v1::Output& whole = *response.mutable_outputs(part.index());
    const std::string text = whole.text() + part.text();
    whole.MergeFrom(part);  // appends lists, takes the rest over
    whole.set_text(text);
  }
  if (chunk.has_usage()) *response.mutable_usage() = chunk.usage();
  if (chunk.has_timings()) *response.mutable_timings() = chunk.timings();
  if (chunk.has_seed()) response.set_seed(chunk.seed());
}

std::string to_json(const v1::GenerateResponse& response) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Every message of ours has a JSON form.
  static_cast<void>(google::protobuf::util::MessageToJsonString(response, &text, options));
  return text;
}

}  // namespace folio::client
