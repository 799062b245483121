// Lines that a person types, with editing and history on a terminal, else as they stand in the input.
#pragma once
#include <memory>
#include <string>

namespace folio::client {

struct TypedLine {
  enum class Kind { kText, kCancelled, kEnd };  // kCancelled: Ctrl-C at the prompt
  Kind kind = Kind::kEnd;
  std::string text;  // kText: without the line's end
};

// One thread but for what says otherwise.
class LineReader {
 public:
  virtual ~LineReader() = default;
  virtual TypedLine read() = 0;
  virtual bool is_terminal() const = 0;
  // Any thread, for Ctrl-C at the prompt: what was typed is forgotten, and read() gives kCancelled. Only on a terminal:
  // elsewhere lines are whole.
  virtual void cancel() {}
  // Any thread, before the program ends without unwinding: the terminal is as it was found.
  virtual void restore_terminal() {}
};

// Editing where the standard input and the error output, to which prompts go, are terminals. `history_path`: see
// HistoryFile; empty: none is kept.
std::unique_ptr<LineReader> make_line_reader(const std::string& history_path);

}  // namespace folio::client
