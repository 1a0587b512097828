// SPDX-License-Identifier: Apache-2.0
#include "tools/run/watchman.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <system_error>

namespace fencekv::run {

struct Watchman::Orders {
  std::atomic<pid_t> group{0};
  std::atomic<std::int64_t> deadline{0};  // BootTime
};
// Between two processes only what needs no lock is atomic.
static_assert(std::atomic<pid_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

namespace {

Error failed(const char* what) {
  return Error(Errc::misconf, std::string(what) + ": " + std::generic_category().message(errno));
}

/// As nobody in particular: no terminal, no signals, no files of the process it was copied from. It
/// would keep pipes open that others wait for.
int stand_aside(int life) {
  ::setsid();
  ::prctl(PR_SET_NAME, "run-watchman");
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  constexpr int kLife = 3;
  if (life != kLife) ::dup2(life, kLife);
  ::close_range(kLife + 1, ~0U, 0);
  return kLife;
}

[[noreturn]] void keep_watch(int given, const std::atomic<pid_t>& group,
                             const std::atomic<std::int64_t>& deadline) {
  const int life = stand_aside(given);
  const int timer = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
  for (pid_t killed = 0;;) {
    const pid_t watched = group.load();
    const BootTime until(deadline.load());
    if (watched > 0 && watched != killed && boot_time() >= until) {
      ::kill(-watched, SIGKILL);
      killed = watched;
    }
    itimerspec alarm{};
    if (watched > 0 && watched != killed) {
      alarm.it_value.tv_sec = until / std::chrono::seconds(1);
      alarm.it_value.tv_nsec = (until % std::chrono::seconds(1)).count();
    }
    ::timerfd_settime(timer, TFD_TIMER_ABSTIME, &alarm, nullptr);

    std::array<pollfd, 2> either{{{life, POLLIN, 0}, {timer, POLLIN, 0}}};
    if (::poll(either.data(), either.size(), -1) <= 0 || either[0].revents == 0) continue;
    char word = 0;
    if (::read(life, &word, 1) > 0) continue;  // New orders.
    if (const pid_t orphaned = group.load(); orphaned > 0) ::kill(-orphaned, SIGKILL);
    ::_exit(0);
  }
}

}  // namespace

Result<Watchman> Watchman::start() {
  void* shared =
      ::mmap(nullptr, sizeof(Orders), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return failed("mmap");
  auto* orders = new (shared) Orders;

  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed("pipe");
  Descriptor hears(ends[0]);
  Descriptor speaks(ends[1]);
  const pid_t id = ::fork();
  if (id < 0) return failed("fork");
  if (id == 0) {
    speaks.reset();
    keep_watch(hears.number(), orders->group, orders->deadline);
  }
  return Watchman(orders, id, std::move(speaks));
}

Watchman::Watchman(Watchman&& other) noexcept
    : orders_(std::exchange(other.orders_, nullptr)),
      id_(std::exchange(other.id_, -1)),
      life_(std::move(other.life_)) {}

void Watchman::watch(pid_t group, BootTime deadline) {
  orders_->deadline = deadline.count();
  orders_->group = group;
  // It sleeps without a deadline so far. If it is gone there is nobody to tell.
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  [[maybe_unused]] const auto told = ::write(life_.number(), "w", 1);
  ::sigaction(SIGPIPE, &before, nullptr);
}

void Watchman::extend(BootTime deadline) {
  orders_->deadline = deadline.count();
}

void Watchman::rest() {
  orders_->group = 0;
}

Watchman::~Watchman() {
  if (orders_ == nullptr) return;
  rest();
  life_.reset();
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::munmap(std::exchange(orders_, nullptr), sizeof(Orders));
}

}  // namespace fencekv::run
