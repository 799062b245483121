// The prefixes that the operator pins at start: each is computed once, by an ordinary request of one output token that
// asks for a pin, before anybody else is served.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "server/config_file.h"
#include "server/generation.h"

namespace folio {

// The ids that prompts with this prefix have in common. A text: as Generate makes them, with the spellings of control
// tokens parsed. A system message: those that two chats share which begin with it and differ in the user's message.
Result<std::vector<TokenId>> prefix_ids(const Generation& generation, const PinnedPrefix& pin);

// Blocks until all are computed; REQUIRES that no call was started. Logs what is pinned. Throws std::runtime_error
// naming the file's entry when one does not fit or could not be pinned.
void pin_prefixes(Engine& engine, const Generation& generation, std::int32_t block_size,
                  const std::vector<PinnedPrefix>& pins);

}  // namespace folio
