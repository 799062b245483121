#include "client/chat.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "client/conversation.h"
#include "client/history_file.h"
#include "client/line_reader.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr const char* kHelp =
    "/system TEXT  set the system message; without TEXT there is none\n"
    "/reset        forget the conversation, but for the system message\n"
    "/stats        counts and times of the last answer\n"
    "/help         this list\n"
    "/exit         leave; so does Ctrl-D\n"
    "//TEXT        a message that begins with one /\n"
    "Ctrl-C stops an answer: what was said stays in the conversation.\n";

std::string_view after(std::string_view line, std::string_view command) {
  line.remove_prefix(command.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

// What a line that begins with one "/" asks for. False: to leave.
bool obey(std::string_view line, Conversation& conversation) {
  const std::string_view command = line.substr(0, line.find(' '));
  if (command == "/exit") return false;
  if (command == "/system") {
    const std::string_view text = after(line, command);
    conversation.set_system(std::string(text));
    std::fprintf(stderr, text.empty() ? "no system message\n" : "the system message is set\n");
  } else if (command == "/reset") {
    conversation.reset();
    std::fprintf(stderr, "a new conversation\n");
  } else if (command == "/stats") {
    conversation.print_last_stats();
  } else {
    if (command != "/help") {
      std::fprintf(stderr, "%s: no such command; a message that begins with / is written //\n",
                   printable(command).c_str());
    }
    std::fprintf(stderr, "%s", kHelp);
  }
  return true;
}

// True: said why the text cannot be sent.
bool refuse(const std::string& text, const char* what) {
  const auto bad = first_bad_byte(text);
  if (bad) std::fprintf(stderr, "folio-client: chat: %s: not UTF-8 at byte %zu\n", what, *bad);
  return bad.has_value();
}

int ask(const std::string& question, Conversation& conversation, bool terminal) {
  const int exit_code = conversation.ask(question);
  if (terminal && conversation.was_stopped()) std::fprintf(stderr, "(stopped)\n");
  return exit_code;
}

int converse(Conversation& conversation, LineReader& lines, const std::atomic<bool>& leaving) {
  if (lines.is_terminal()) {
    if (const int exit_code = conversation.greet(); exit_code != kExitOk) return exit_code;
    std::fprintf(stderr, "Ctrl-C stops an answer; /help lists the commands\n");
  }
  int exit_code = kExitOk;
  while (!leaving.load()) {
    const TypedLine line = lines.read();
    if (line.kind == TypedLine::Kind::kEnd) return exit_code;
    if (line.kind == TypedLine::Kind::kCancelled) {
      std::fprintf(stderr, "(/exit or Ctrl-D leaves)\n");
    } else if (refuse(line.text, "the line")) {
      exit_code = kExitUsage;
    } else if (line.text.starts_with("//")) {
      exit_code = ask(line.text.substr(1), conversation, lines.is_terminal());
    } else if (line.text.starts_with('/')) {
      if (!obey(line.text, conversation)) return exit_code;
    } else if (!line.text.empty()) {
      exit_code = ask(line.text, conversation, lines.is_terminal());
    }
  }
  return 128 + SIGTERM;
}

}  // namespace

int run_chat(const ChatOptions& options, Interrupts& interrupts) {
  if (options.flags.n.value_or(1) != 1) {
    std::fprintf(stderr, "folio-client: chat: --n: a conversation goes on from one answer\n");
    return kExitUsage;
  }
  if (refuse(options.system, "--system") || refuse(options.message.value_or(""), "the message")) return kExitUsage;
  if (options.message && options.message->empty()) {
    std::fprintf(stderr, "folio-client: chat: the message is empty; without one there is a conversation\n");
    return kExitUsage;
  }
  Conversation conversation(options);
  std::unique_ptr<LineReader> lines;
  if (!options.message) lines = make_line_reader(HistoryFile::default_path());
  std::atomic<bool> leaving{false};
  bool was_told = false;  // of the signal thread: the last Ctrl-C stopped nothing
  interrupts.on_interrupt([&](int signal, int) {
    if (signal == SIGTERM) leaving.store(true);
    if (conversation.stop()) {
      was_told = false;
      return;
    }
    if (signal == SIGTERM) {
      if (lines) lines->restore_terminal();
      _exit(128 + SIGTERM);
    }
    if (lines && lines->is_terminal()) return lines->cancel();
    // Where lines come through a pipe nobody can type /exit.
    if (std::exchange(was_told, true)) _exit(128 + signal);
    std::fprintf(stderr, "\n(/exit or Ctrl-D leaves)\n");
  });
  int exit_code = lines ? converse(conversation, *lines, leaving) : ask(*options.message, conversation, false);
  if (!lines && exit_code == kExitOk && conversation.was_stopped()) exit_code = kExitInterrupted;
  interrupts.on_interrupt(nullptr);
  return exit_code;
}

}  // namespace folio::client
