// SPDX-License-Identifier: Apache-2.0
#include "tools/run/terminal.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>
#include <utility>

namespace fencekv::run {

Terminal::Terminal() : device_(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)) {}

bool Terminal::is_ours() const {
  return device_.is_open() && ::tcgetpgrp(device_.number()) == ::getpgrp();
}

void Terminal::give(pid_t group) {
  if (!device_.is_open()) return;
  // `group` may have taken it itself, a moment ago.
  const bool taken = ::tcgetpgrp(device_.number()) == group;
  if (taken || is_ours()) given_ = taken || ::tcsetpgrp(device_.number(), group) == 0;
}

void Terminal::give_to_self() const {
  // The group of the parent still, while setpgid() has been called here.
  if (device_.is_open() && ::tcgetpgrp(device_.number()) == ::getpgid(::getppid())) {
    ::tcsetpgrp(device_.number(), ::getpgrp());
  }
}

bool Terminal::take() {
  if (given_) ::tcsetpgrp(device_.number(), ::getpgrp());
  return std::exchange(given_, false);
}

}  // namespace fencekv::run
