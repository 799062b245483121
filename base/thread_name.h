// A thread's name in top, perf and /proc: whose time it is.
#pragma once
#include <pthread.h>

namespace folio {

// The calling thread, until it ends. At most 15 characters: a longer name changes nothing.
inline void name_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace folio
