// SPDX-License-Identifier: Apache-2.0
/// Errors as values. Nothing in fencekv throws across a public header except std::bad_alloc.

#pragma once

#include "fencekv/types.h"

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace fencekv {

/// What the caller should do now. Branch on this, never on text.
///
/// The first block are the codes of the wire protocol, one to one.
enum class Errc : std::uint8_t {
  invalid,      ///< ERR: the call breaks a documented rule. Retrying cannot help: fix the call.
  too_big,      ///< TOOBIG: a value or request that another configuration would take.
  fenced,       ///< FENCED: a newer holder exists, or this grant was closed. Stop; never retry.
  unissued,     ///< UNISSUED: the token is above everything handed out. Fix where it comes from.
  no_lease,     ///< NOLEASE: the lease named was never granted. Acquire it first.
  wrong_lease,  ///< WRONGLEASE: the key is guarded by another lease, Error::subject() names it.
  expired,      ///< EXPIRED: LIVE was asked for and the lease's time is over. Acquire it again.
  version,      ///< VERSION: the key changed meanwhile. Read it again, then retry.
  lease_lost,   ///< LEASELOST: the grant is not yours any more, Error::reason() says why. Stop.
  overloaded,   ///< OVERLOADED: not executed. Safe to retry, later.
  in_doubt,     ///< INDOUBT: it may have happened in full, or not at all. Ask before you retry.
  misconf,      ///< MISCONF: the storage takes no writes now. Not executed; retry with back-off.
  corrupt,      ///< CORRUPT: stored bytes fail their checks. An operator must look.

  // Opening a store.
  in_use = 32,   ///< Another process has the directory open.
  newer_format,  ///< The directory was written by a newer version that this build cannot read.
  no_space,      ///< There is no space to create a store.

  // The network client.
  unreachable = 64,  ///< No connection, and the command was certainly not sent. Safe to retry.
  denied,            ///< Not authenticated, or the password is wrong.
  protocol,          ///< The peer does not speak this protocol. The outcome is unknown.
};

/// The code as the wire protocol spells it, `FENCED`. Codes that never travel give their own
/// upper-case word.
std::string_view to_string(Errc code);

/// An Errc together with what a person needs to find the cause.
class [[nodiscard]] Error {
 public:
  /// `detail` is one line: what follows the code on the wire.
  Error(Errc code, std::string detail) : code_(code), detail_(std::move(detail)) {}

  Errc code() const { return code_; }

  /// What follows the code: numbers first, then words. One line of printable text.
  const std::string& detail() const { return detail_; }

  /// The whole line as the wire protocol sends it: `FENCED 34 33 superseded`.
  std::string line() const;

  /// fenced, unissued: what the offered token was compared with. Otherwise none.
  Token highest() const { return highest_; }
  /// fenced, unissued: the token that was offered. Otherwise none.
  Token offered() const { return offered_; }
  /// fenced, lease_lost: `stale once floor superseded released revoked disconnected expired
  /// unknown`. Otherwise empty.
  const std::string& reason() const { return reason_; }
  /// wrong_lease: the guard; no_lease: the name; both as given, not escaped. Otherwise empty.
  const std::string& subject() const { return subject_; }

  static Error fenced(Token highest, Token offered, std::string_view reason);
  static Error unissued(Token newest, Token offered);
  static Error no_lease(std::string_view name);
  static Error wrong_lease(std::string_view guard);
  static Error expired(std::uint64_t ms_since);
  static Error version(std::uint64_t current, std::uint64_t expected);
  static Error lease_lost(std::string_view reason);

  /// Appends words to the detail: ` more`.
  Error& append(std::string_view more);

  /// Two errors are equal when a caller cannot tell them apart.
  friend bool operator==(const Error&, const Error&) = default;

  friend Error parse_error_line(std::string_view line);

 private:
  Errc code_;
  std::string detail_;
  Token highest_;
  Token offered_;
  std::string reason_;
  std::string subject_;
};

/// Understands a line of the wire protocol, `FENCED 34 33 superseded`: the inverse of
/// Error::line(). A line whose code is unknown becomes Errc::invalid with the whole line as detail.
Error parse_error_line(std::string_view line);

/// User bytes for an error line or a log: printable ASCII but blank and backslash as it is,
/// everything else as `\xHH`; cut at 64 bytes of input, which `…` in ASCII (`...`) then shows.
std::string escaped(std::string_view bytes);

/// A T, or the reason why there is none. The members are those of std::expected.
template <class T>
class [[nodiscard]] Result {
 public:
  template <class U = T>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Error> &&
           !std::is_same_v<std::remove_cvref_t<U>, Result>)
      Result(U&& value)  // NOLINT: implicit, as in std::expected
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }

  const Error& error() const& {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    assert(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

  friend bool operator==(const Result&, const Result&) = default;

 private:
  T& checked() {
    assert(has_value() && "a Result was used without looking at its error");
    return *std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }

  const Error& error() const {
    assert(error_);
    return *error_;
  }

  friend bool operator==(const Result&, const Result&) = default;

 private:
  std::optional<Error> error_;
};

}  // namespace fencekv
