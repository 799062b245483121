// One conversation: its messages, and the answer that is under way.
#pragma once
#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>

#include "client/chat.h"

namespace folio::client {

class Conversation {
 public:
  explicit Conversation(const ChatOptions& options);

  // Says whom one speaks with, before the first turn. An exit code: there may be nobody.
  int greet();
  // One turn, printed as it comes. An exit code: kExitOk also for an answer that was stopped. When it failed, the
  // question is not part of the history.
  int ask(const std::string& question);
  bool was_stopped() const { return was_stopped_; }  // the last answer, by stop()

  // Empty: none. The rest of the conversation stays.
  void set_system(const std::string& text);
  void reset();  // but for the system message
  void print_last_stats() const;

  // Any thread: stops the answer that is under way. False: there is none.
  bool stop();

 private:
  void add(const char* role, const std::string& content);
  bool set_current(grpc::ClientContext* context);
  v1::GenerateResponse read(grpc::ClientReader<v1::GenerateChunk>& reader) const;
  bool has_system() const;
  int num_turns() const;

  const ChatOptions& options_;
  const std::unique_ptr<v1::Generation::Stub> stub_;
  v1::ChatRequest request_;
  v1::GenerateResponse last_;  // for /stats
  bool was_stopped_ = false;
  std::mutex mutex_;
  grpc::ClientContext* current_ = nullptr;  // of the answer that is under way
  bool stopped_ = false;
};

}  // namespace folio::client
