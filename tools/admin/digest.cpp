// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace fencekv::admin {

struct Digest::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> of{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

Digest::Digest() : context_(std::make_unique<Context>()) {
  EVP_DigestInit_ex(context_->of.get(), EVP_sha256(), nullptr);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;

void Digest::add(std::string_view bytes) {
  EVP_DigestUpdate(context_->of.get(), bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  // Finishing ends a context; more may come.
  Context copy;
  EVP_MD_CTX_copy_ex(copy.of.get(), context_->of.get());
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_DigestFinal_ex(copy.of.get(), bytes.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace fencekv::admin
