// SPDX-License-Identifier: Apache-2.0
/// How much memory this process may use, and what a server takes of it if nobody says more.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace fencekv::server {

/// The smallest of: the memory of the machine, the address space that this process may have (ulimit
/// -v), and the limits of the control groups that it is in, its own and those above it, of either
/// version. In a container these are the only ones that tell. A file that is missing, or says
/// nothing that can be understood, limits nothing. nullopt: nothing does.
///
/// `root`: where /proc and /sys are, for tests.
std::optional<std::uint64_t> usable_memory(const std::filesystem::path& root = "/");

/// A quarter of that, from 64 MiB to 16 GiB; Options' own default if it is not known.
std::size_t default_memory_budget(const std::filesystem::path& root = "/");

}  // namespace fencekv::server
