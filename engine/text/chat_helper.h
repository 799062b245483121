// The process that runs Jinja2 (chat_template_helper.py, in this program as a string): started, spoken to over a
// socket pair, killed past its time, started anew. One thread at a time may call.
//
// The child has nothing of the server but that socket: other descriptors are closed, its environment holds the locale
// and the time zone only, and a process group of its own keeps a Ctrl-C in the server's terminal from it. It ends when
// the server does. A child that someone else killed stays a zombie until the next ask().
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace folio {

class ChatHelper {
 public:
  struct Options {
    std::string python;           // path
    std::string setup;            // the first frame, JSON
    std::size_t max_reply_bytes;  // a longer reply is taken for a broken helper
    std::chrono::milliseconds start_limit;
    std::chrono::milliseconds render_limit;
  };
  explicit ChatHelper(Options options) : options_(std::move(options)) {}
  ~ChatHelper() { stop(); }
  ChatHelper(const ChatHelper&) = delete;
  ChatHelper& operator=(const ChatHelper&) = delete;

  // Starts the helper if it does not run and waits until it is ready. Empty, or why it is not.
  std::string make_ready();

  enum class Outcome { kRendered, kRaised, kFailed, kTimeout, kDied, kNotStarted };
  struct Reply {
    Outcome outcome;
    std::string text;  // the rendered text, or what is wrong; UTF-8
  };
  // After kTimeout and kDied the next helper is already starting.
  Reply ask(std::string_view request);

 private:
  enum class Io { kOk, kTimeout, kLost };
  using Deadline = std::chrono::steady_clock::time_point;

  std::string spawn();
  void stop();
  Io wait_for(short events, Deadline deadline) const;
  Io send(std::string_view bytes, Deadline deadline) const;
  Io send_frame(std::string_view text, Deadline deadline) const;
  Io receive(char* bytes, std::size_t size, Deadline deadline) const;
  Io receive_frame(char& kind, std::string& text, Deadline deadline) const;

  const Options options_;
  pid_t pid_ = -1;  // -1: none runs
  int socket_ = -1;
  bool ready_ = false;  // its template is compiled
};

}  // namespace folio
