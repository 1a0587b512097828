// SPDX-License-Identifier: Apache-2.0
/// What an administrator asks of the store as a whole: backups.

#include "server/backups.h"
#include "server/commands/families.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fencekv::server {
namespace {

using resp::ReplyWriter;

constexpr Argument kBackupArguments[] = {{.name = "name"}};

void write_backup(ReplyWriter& reply, const Backup& backup) {
  reply.map(7);
  reply.bulk("name");
  reply.bulk(backup.name);
  reply.bulk("bytes");
  reply.integer(static_cast<std::int64_t>(backup.bytes));
  reply.bulk("files");
  reply.integer(static_cast<std::int64_t>(backup.files));
  reply.bulk("records");
  reply.integer(static_cast<std::int64_t>(backup.records));
  reply.bulk("group");
  reply.integer(static_cast<std::int64_t>(backup.group));
  reply.bulk("newest");
  reply.number_as_bulk(backup.newest.number());
  reply.bulk("taken");
  reply.integer(backup.taken.count());
}

Outcome store_backup(Call& call) {
  // The work hands it over to the format: the store's own answers have no place for it.
  auto made = std::make_shared<std::optional<Backup>>();
  auto work = [&backups = call.server.backups, name = std::string(call.arguments[1]),
               made](const std::function<void(Result<Reply>)>& done) {
    const auto begun = backups.begin(name, [made, done](Result<Backup> result) {
      if (!result) return done(std::move(result).error());
      *made = *std::move(result);
      done(Reply(std::monostate{}));
    });
    if (!begun) done(begun.error());
  };
  return StoreCall{.command = {},
                   .format = [made](ReplyWriter& reply, Reply&) { write_backup(reply, **made); },
                   .work = std::move(work)};
}

Outcome store_backups(Call& call) {
  const auto backups = call.server.backups.list();
  if (!backups) return call.refuse(backups.error());
  auto reply = call.reply();
  reply.array(backups->size());
  for (const Backup& backup : *backups) write_backup(reply, backup);
  return std::nullopt;
}

constexpr CommandSpec kCommands[] = {
    {.name = "store.backup",
     .arity = 2,
     .access = Access::admin,
     .group = "server",
     .summary = "Makes a complete, verified backup in the backup root.",
     .arguments = kBackupArguments,
     .handler = store_backup,
     .after_writes = true,
     .may_wait = true},
    {.name = "store.backups",
     .arity = 1,
     .access = Access::admin,
     .group = "server",
     .summary = "Returns the complete backups in the backup root.",
     .handler = store_backups},
};

}  // namespace

std::span<const CommandSpec> store_commands() {
  return kCommands;
}

}  // namespace fencekv::server
