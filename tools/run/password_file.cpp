// SPDX-License-Identifier: Apache-2.0
#include "tools/run/password_file.h"

#include "tools/run/descriptor.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>

namespace fencekv::run {
namespace {

// That of the server.
constexpr std::size_t kMaxPasswordBytes = 512;

}  // namespace

Result<std::string> read_password(const std::string& file) {
  const auto failed = [&](std::string_view what) {
    return Error(Errc::invalid, "password file " + file + ": " + std::string(what));
  };
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.is_open()) return failed(std::generic_category().message(errno));
  // The mode is asked of what was opened, not of the name, which may mean another file by now.
  struct stat status {};
  if (::fstat(opened.number(), &status) != 0) return failed(std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode)) return failed("is not a regular file");
  if ((status.st_mode & 077U) != 0) {
    return failed("may be used by group or others; run chmod 600 on it");
  }

  std::string text(kMaxPasswordBytes + 2, '\0');
  const auto size = ::read(opened.number(), text.data(), text.size());
  if (size < 0) return failed(std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(size));
  text.resize(std::min(text.find('\n'), text.size()));
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty()) return failed("is empty; put the password on its first line");
  if (text.size() > kMaxPasswordBytes) return failed("the password is longer than 512 bytes");
  return text;
}

}  // namespace fencekv::run
