#include "client/chat.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>

namespace folio::client {
namespace {

class Conversation {
 public:
  Conversation(const ChatOptions& options, Interrupts& interrupts)
      : options_(options), stub_(v1::Generation::NewStub(make_channel(options.connection))) {
    options.flags.apply(request_);
    if (!options.system.empty()) add("system", options.system);
    interrupts.on_interrupt([this](int signal, int) { interrupt(signal); });
  }

  // One turn. False when it failed: the question is then not part of the history.
  bool ask(const std::string& question) {
    add("user", question);
    grpc::ClientContext context;
    options_.connection.authorize(context);
    set_current(&context);
    const auto reader = stub_->ChatStream(&context, request_);
    v1::GenerateResponse whole;
    v1::GenerateChunk chunk;
    while (reader->Read(&chunk)) {
      join(chunk, whole);
      if (options_.json) continue;
      for (const v1::Output& output : chunk.outputs()) {
        if (output.index() == 0) print_text(output.text());
      }
    }
    const grpc::Status status = reader->Finish();
    const bool stopped = set_current(nullptr);
    if (whole.outputs_size() > 0) std::printf("%s\n", options_.json ? to_json(whole).c_str() : "");
    std::fflush(stdout);
    if (options_.stats && whole.has_usage()) print_stats(whole);
    if (!status.ok() && !stopped) {
      print_error(status);
      request_.mutable_messages()->RemoveLast();
      return false;
    }
    was_stopped_ = stopped;
    // What was said before the interruption stays said.
    add("assistant", whole.outputs_size() > 0 ? whole.outputs(0).text() : "");
    return true;
  }

  bool was_stopped() const { return was_stopped_; }

 private:
  void add(const char* role, const std::string& content) {
    v1::ChatMessage& message = *request_.add_messages();
    message.set_role(role);
    message.set_content(content);
  }

  // Whether the previous one was interrupted.
  bool set_current(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    current_ = context;
    return std::exchange(stopped_, false);
  }

  void interrupt(int signal) {  // signal thread
    const std::lock_guard lock(mutex_);
    if (current_ != nullptr) {
      stopped_ = true;
      current_->TryCancel();
    } else if (signal == SIGTERM) {
      _exit(128 + SIGTERM);
    } else {
      std::fprintf(stderr, "\n(/exit or Ctrl-D leaves)\n> ");
    }
  }

  const ChatOptions& options_;
  const std::unique_ptr<v1::Generation::Stub> stub_;
  v1::ChatRequest request_;
  std::mutex mutex_;
  grpc::ClientContext* current_ = nullptr;  // of the answer that is running
  bool stopped_ = false;
  bool was_stopped_ = false;  // the last answer, by the user
};

int converse(Conversation& conversation) {
  int exit_code = kExitOk;
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (true) {
    if (terminal) std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    exit_code = conversation.ask(line) ? kExitOk : kExitFailed;
  }
  return exit_code;
}

}  // namespace

int run_chat(const ChatOptions& options, Interrupts& interrupts) {
  if (options.flags.n.value_or(1) != 1) {
    std::fprintf(stderr, "folio-client: chat: --n: a conversation goes on from one answer\n");
    return kExitUsage;
  }
  Conversation conversation(options, interrupts);
  int exit_code = kExitOk;
  if (options.message.empty()) {
    exit_code = converse(conversation);
  } else if (!conversation.ask(options.message)) {
    exit_code = kExitFailed;
  } else if (conversation.was_stopped()) {
    exit_code = kExitInterrupted;
  }
  interrupts.on_interrupt(nullptr);
  return exit_code;
}

}  // namespace folio::client
