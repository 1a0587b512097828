// SPDX-License-Identifier: Apache-2.0
/// For threads that the library starts: signals are for the program's own threads.

#pragma once

#include <pthread.h>
#include <signal.h>

namespace fencekv {

/// Blocks all signals in the current thread while it lives. A thread that is started meanwhile
/// inherits that for good.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace fencekv
