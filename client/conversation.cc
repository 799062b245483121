#include "client/conversation.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "client/failure.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr auto kGreetingTime = std::chrono::seconds(5);  // a server that does not say its name in this is none

}  // namespace

Conversation::Conversation(const ChatOptions& options)
    : options_(options), stub_(v1::Generation::NewStub(make_channel(options.connection))) {
  options.flags.apply(request_);
  set_system(options.system);
}

int Conversation::greet() {
  grpc::ClientContext context;
  options_.connection.authorize(context);
  context.set_deadline(std::chrono::system_clock::now() + kGreetingTime);
  v1::ListModelsResponse models;
  set_current(&context);
  const grpc::Status status = stub_->ListModels(&context, {}, &models);
  if (set_current(nullptr)) return kExitInterrupted;
  if (!status.ok()) return report(status, options_.connection, Listener::kGeneration);
  for (const auto& model : models.models()) {
    std::fprintf(stderr, "%s, %lld tokens of context\n", printable(model.name()).c_str(),
                 static_cast<long long>(model.max_context()));
  }
  return kExitOk;
}

void Conversation::add(const char* role, const std::string& content) {
  v1::ChatMessage& message = *request_.add_messages();
  message.set_role(role);
  message.set_content(content);
}

bool Conversation::has_system() const {
  return request_.messages_size() > 0 && request_.messages(0).role() == "system";
}

int Conversation::num_turns() const {
  return (request_.messages_size() - (has_system() ? 1 : 0)) / 2;
}

void Conversation::set_system(const std::string& text) {
  v1::ChatRequest old;
  old.mutable_messages()->Swap(request_.mutable_messages());
  if (!text.empty()) add("system", text);
  for (v1::ChatMessage& message : *old.mutable_messages()) {
    if (message.role() != "system") request_.add_messages()->Swap(&message);
  }
}

void Conversation::reset() {
  const int kept = has_system() ? 1 : 0;
  request_.mutable_messages()->DeleteSubrange(kept, request_.messages_size() - kept);
  last_.Clear();
}

void Conversation::print_last_stats() const {
  const int turns = num_turns();
  if (!last_.has_usage()) {
    std::fprintf(stderr, turns > 0 ? "the last answer was stopped: no counts of it\n" : "no answer yet\n");
    return;
  }
  print_stats(last_);
  std::fprintf(stderr, "turn %d; the conversation has %lld tokens\n", turns,
               static_cast<long long>(last_.usage().prompt_tokens() + last_.usage().output_tokens()));
}

// Whether the previous one was stopped.
bool Conversation::set_current(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  current_ = context;
  return std::exchange(stopped_, false);
}

bool Conversation::stop() {
  const std::lock_guard lock(mutex_);
  if (current_ == nullptr) return false;
  stopped_ = true;
  current_->TryCancel();
  return true;
}

v1::GenerateResponse Conversation::read(grpc::ClientReader<v1::GenerateChunk>& reader) const {
  v1::GenerateResponse whole;
  v1::GenerateChunk chunk;
  while (reader.Read(&chunk)) {
    join(chunk, whole);
    if (options_.json) continue;
    for (const v1::Output& output : chunk.outputs()) {
      if (output.index() == 0) print_text(output.text());
    }
  }
  return whole;
}

int Conversation::ask(const std::string& question) {
  add("user", question);
  grpc::ClientContext context;
  options_.connection.authorize(context);
  set_current(&context);
  const auto reader = stub_->ChatStream(&context, request_);
  v1::GenerateResponse whole = read(*reader);
  const grpc::Status status = reader->Finish();
  was_stopped_ = set_current(nullptr);
  if (whole.outputs_size() > 0) std::printf("%s\n", options_.json ? to_json(whole).c_str() : "");
  std::fflush(stdout);
  print_cut(whole);
  if (options_.stats && whole.has_usage()) print_stats(whole);
  if (!status.ok() && !was_stopped_) {
    request_.mutable_messages()->RemoveLast();
    const int exit_code = report(status, options_.connection, Listener::kGeneration);
    const bool is_too_long = status.error_message().find("over the context") != std::string::npos;
    if (is_too_long && num_turns() > 0) std::fprintf(stderr, "/reset forgets the conversation, and begins a new one\n");
    return exit_code;
  }
  // What was said before the interruption stays said.
  add("assistant", whole.outputs_size() > 0 ? whole.outputs(0).text() : "");
  last_ = std::move(whole);
  return kExitOk;
}

}  // namespace folio::client
