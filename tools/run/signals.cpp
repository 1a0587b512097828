// SPDX-License-Identifier: Apache-2.0
#include "tools/run/signals.h"

#include <cerrno>
#include <initializer_list>
#include <sys/signalfd.h>
#include <system_error>

namespace fencekv::run {
namespace {

// SIGTTOU: who gives the terminal to another group would be stopped for it.
constexpr std::initializer_list<int> kHeard{SIGTERM,  SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                            SIGWINCH, SIGTSTP, SIGCONT, SIGCHLD, SIGTTOU};

}  // namespace

Result<Signals> Signals::open() {
  // A parent that ignores the end of its children made that so for this process, too; then nobody
  // could be waited for.
  ::signal(SIGCHLD, SIG_DFL);

  Signals signals;
  sigset_t heard;
  sigemptyset(&heard);
  for (const int number : kHeard) sigaddset(&heard, number);
  ::pthread_sigmask(SIG_BLOCK, &heard, &signals.before_);
  signals.descriptor_ = Descriptor(::signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals.descriptor_.is_open()) {
    return Error(Errc::misconf, "signalfd: " + std::generic_category().message(errno));
  }
  return signals;
}

std::optional<int> Signals::next() {
  signalfd_siginfo came{};
  if (::read(descriptor_.number(), &came, sizeof came) != sizeof came) return std::nullopt;
  return static_cast<int>(came.ssi_signo);
}

}  // namespace fencekv::run
