// SPDX-License-Identifier: Apache-2.0

#include "server/password.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace fencekv::server {
namespace {

constexpr std::size_t kMaxPasswordBytes = 512;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

Password::Password(std::string_view text) : digest_(digest_of(text)) {}

Result<Password> Password::read(const std::filesystem::path& file) {
  const auto failed = [&](std::string_view what) {
    return Error(Errc::invalid, fmt::format("password file {}: {}", file.string(), what));
  };

  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.number() < 0) return failed(std::generic_category().message(errno));
  struct stat status {};
  if (::fstat(opened.number(), &status) != 0) return failed(std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode)) return failed("is not a regular file");
  // The mode is asked of what was opened, not of the name, which may mean another file by now.
  if ((status.st_mode & 077) != 0) {
    return failed(fmt::format("may be used by group or others (mode {:04o}); run chmod 600 on it",
                              status.st_mode & 07777));
  }

  std::string text(kMaxPasswordBytes + 2, '\0');
  const ssize_t size = ::read(opened.number(), text.data(), text.size());
  if (size < 0) return failed(std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(size));
  text.resize(std::min(text.find('\n'), text.size()));
  if (text.ends_with('\r')) text.pop_back();

  const bool empty = text.empty();
  const bool long_text = text.size() > kMaxPasswordBytes;
  Password password(text);
  OPENSSL_cleanse(text.data(), text.size());
  if (empty) return failed("is empty; put the password on its first line");
  if (long_text) {
    return failed(fmt::format("the password is longer than {} bytes", kMaxPasswordBytes));
  }
  return password;
}

bool Password::matches(std::string_view offered) const {
  if (!digest_) return true;
  const Digest digest = digest_of(offered);
  return CRYPTO_memcmp(digest.data(), digest_->data(), digest.size()) == 0;
}

Password::Digest Password::digest_of(std::string_view text) {
  Digest digest{};
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return digest;
}

}  // namespace fencekv::server
