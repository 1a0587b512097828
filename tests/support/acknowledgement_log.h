// SPDX-License-Identifier: Apache-2.0
/// What writers said of their work before their store was killed: a line before each command and a
/// line after its reply, so that nothing acknowledged is ever missing.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fencekv::testing {

/// One line a saying:
///
///     try KEY TOKEN VERSION VALUE    before a write, one line for each of its keys; VALUE `-`:
///     deleted ack KEY TOKEN VERSION VALUE    after its reply token T                        a
///     grant grant NAME OWNER T             a grant that stands until the next line about NAME
///     releasing NAME                 before a release
///     released NAME                  after its reply
///
/// Each key has one writer, who has one write in flight at a time.
struct AcknowledgementLog {
  struct Version {
    std::uint64_t token = 0;
    std::uint64_t version = 0;
    std::string value;  // `-`: deleted

    friend bool operator==(const Version&, const Version&) = default;
  };
  struct Grant {
    enum class End { held, releasing, released };

    std::string owner;
    std::uint64_t token = 0;
    End end = End::held;
  };

  std::map<std::string, Version> acknowledged;  ///< The last of each key.
  std::map<std::string, Version> tried;         ///< What was in flight when the store died.
  std::map<std::string, Grant> grants;          ///< The last of each name.
  std::vector<std::uint64_t> tokens;            ///< In the order in which they were told of.
  int acks = 0;

  void hear_all(const std::string& said) {
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);) hear(line);
  }

  void hear(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    std::string name;
    words >> word;
    if (word == "token") {
      std::uint64_t token = 0;
      words >> token;
      tokens.push_back(token);
    } else if (word == "grant") {
      Grant grant;
      words >> name >> grant.owner >> grant.token;
      grants[name] = grant;
      tokens.push_back(grant.token);
    } else if (word == "releasing" || word == "released") {
      words >> name;
      grants[name].end = word == "released" ? Grant::End::released : Grant::End::releasing;
    } else if (word == "try" || word == "ack") {
      Version version;
      words >> name >> version.token >> version.version >> version.value;
      if (word == "try") {
        tried[name] = version;
      } else {
        acknowledged[name] = version;
        tried.erase(name);
        ++acks;
      }
    }
  }

  /// Every key that was written, or may be.
  std::set<std::string> keys() const {
    std::set<std::string> all;
    for (const auto* versions : {&acknowledged, &tried}) {
      for (const auto& [key, version] : *versions) all.insert(key);
    }
    return all;
  }
};

}  // namespace fencekv::testing
