// What the prefix cache is worth: users with a system prompt in common and tails of their own, all at once. Three
// times: without the cache (off), with an empty one (cold), and with the system prompt in it (warm). Each user's answer
// goes on until all have a first token, so that all of them hold their blocks at the end: what is held then is compared
// with the system prompt once and every user's own tokens. Times to the first token are counted from the user's submit.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_prefix_command(CLI::App& app);  // flags and what runs when it was chosen

}  // namespace folio::bench
