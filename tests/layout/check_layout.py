#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the shape of the house: what may include what, and what every file must or must not say.

    check_layout.py ROOT        checks the checkout at ROOT; prints each violation, exits 1 if any
    check_layout.py --self-test plants one violation of each rule in a small tree and expects it found
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath

# The rooms, longest folder first. A file belongs to the first that its path starts with. Each may
# include from the rooms named, and from third parties those whose header matches; std is free.
# "engine/include" and "client/include" are written "fencekv/...".
ROOMS = {
    "engine/include": ((), None),
    "engine/core": (("engine/include",), r"(boost/unordered|openssl/|xxhash\.h)"),
    "engine/memory": (("engine/include", "engine/core"), None),
    "engine/rocksdb": (("engine/include", "engine/core"), r"(rocksdb/|openssl/|xxhash\.h)"),
    "server/resp": (("engine/include",), None),
    "server": (("engine/include", "server/resp"), r"(boost/|fmt/|spdlog/|CLI/|toml\+\+/|openssl/)"),
    "client/include": (("engine/include",), None),
    "client": (("engine/include", "client/include", "server/resp"), r"(boost/|fmt/)"),
    # The tools read a store at rest: they know the format of a record, one reader of files, and what
    # makes a store or a backup in one go.
    "tools/admin": (("engine/include", "engine/format", "engine/reader", "engine/maker"),
                    r"(boost/|fmt/|CLI/|nlohmann/|openssl/)"),
    "tools/demo": (("engine/include", "client/include"), r"(fmt/|CLI/)"),
    "tools/run": (("engine/include", "client/include"), r"(fmt/|CLI/)"),
    "tools/bench": (("engine/include", "client/include"), r"(fmt/|CLI/|benchmark/)"),
    "tools/bench/load": ((), r"(boost/|fmt/|CLI/|libpq-fe\.h|nghttp2/)"),
    # Drives what others wait for, in one thread: it looks everywhere, as tests do.
    "tools/bench/cost": (("*",), r"(boost/asio/|fmt/|CLI/|spdlog/)"),
    "tools/bench/embedded": (("engine/include", "engine/database"), r"(benchmark/|fmt/|rocksdb/)"),
    # Tests look everywhere. Faults are put under RocksDB in these, nowhere else.
    "tests/crash": (("*",), r".*"),
    "tests/faults": (("*",), r".*"),
    "tests/simulation": (("*",), r".*"),
    "tests/golden": (("*",), r".*"),
    "tests/support": (("*",), r".*"),
    "tests": (("*",), r"(?!rocksdb/).*"),
}

# Headers of a room that another room may see, although it may not see the room.
WINDOWS = {
    "engine/core/record.h": "engine/format",
    "engine/rocksdb/store_reader.h": "engine/reader",
    "engine/core/new_history.h": "engine/maker",
    "engine/rocksdb/database_options.h": "engine/database",
    "engine/rocksdb/backup.h": "engine/maker",
    "engine/rocksdb/file_system.h": "engine/maker",
    "engine/rocksdb/new_store.h": "engine/maker",
    "engine/rocksdb/repair.h": "engine/maker",
    "engine/rocksdb/restore.h": "engine/maker",
}

STD = re.compile(r"^[a-z0-9_]+$|^(sys|linux|arpa|netinet|netdb)(/|\.h$)|"
                 r"^(unistd|fcntl|signal|poll|dirent|dlfcn|getopt|malloc|pthread|termios|sched|time|errno|stdlib|"
                 r"string|stdio|sysexits|pwd|grp)\.h$")
SOURCE = {".cpp", ".h", ".py", ".sh", ".js", ".mjs", ".cjs", ".go"}
TEXT = SOURCE | {".txt", ".cmake", ".in", ".md", ".json", ".toml", ".supp", ".yml", ""}
BANNED = ("util", "utils", "helper", "helpers", "manager", "common", "misc", "data", "info", "impl")
# In two pieces, so that this file does not speak of what it forbids.
PLACES = re.compile("|".join(("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/[a-z]", "registry" + r"\.npmjs",
                              "artifact" + "ory", r"\.pye" + "nv", r"127\.0\.0\.1:8" + "081")))
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TYPE_NAME = re.compile(r"^\s*(?:template\s*<.*>\s*)?(?:class|struct|union|enum(?:\s+class)?|namespace)"
                       r"\s+(?:\[\[\w+\]\]\s+)?(\w+)")


def words(name):
    """The words of CamelCase and snake_case names, in lower case."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def room_of(path):
    for room in sorted(ROOMS, key=len, reverse=True):
        if path.startswith(room + "/"):
            return room
    return None


def resolve(root, path, quoted):
    """The file, relative to the root, that `#include "quoted"` in `path` names; None: nowhere."""
    for base in ("engine/include", "client/include", "", str(PurePosixPath(path).parent)):
        candidate = PurePosixPath(base) / quoted
        if (root / candidate).is_file():
            return str(candidate)
    return None


def check_include(root, path, style, target):
    room = room_of(path)
    if room is None:
        return f"{path} belongs to no room of tests/layout/check_layout.py"
    rooms, third_party = ROOMS[room]
    if style == "<":
        if STD.match(target) or (third_party and re.match(third_party, target)):
            return None
        return f"{room} may not include <{target}>"
    found = resolve(root, path, target)
    if found is None:
        return f'"{target}" is no file of this project; third parties are written <…>'
    their_room = room_of(found)
    if their_room == room or "*" in rooms or their_room in rooms or WINDOWS.get(found) in rooms:
        if their_room and their_room.startswith("tests") and not room.startswith("tests"):
            return f"only tests include tests, not {found}"
        return None
    return f"{room} may not include {found}"


def check_file(root, path):
    """All violations in one file, as (line number, text)."""
    pure = PurePosixPath(path)
    for part in pure.parts:
        stem = part.split(".")[0]
        for word in words(stem):
            if word in BANNED:
                yield 0, f"the name {part} says nothing ({word}): name it by its topic"
    if pure.suffix not in TEXT or pure.name == "LICENSE":
        return
    content = (root / path).read_bytes()
    # Inputs of fuzzers and stores of earlier versions have no suffix, and are not text.
    if pure.suffix == "" and not content.startswith(b"#!") and not pure.name.startswith("."):
        return
    text = content.decode("utf-8")
    lines = text.splitlines()
    script = lines[:1] and lines[0].startswith("#!")
    if pure.suffix in SOURCE or script:
        mark = "# " if pure.suffix in (".py", ".sh") or (script and pure.suffix == "") else "// "
        if mark + "SPDX-License-Identifier: Apache-2.0" not in lines[:2]:
            yield 1, "the SPDX line is missing"
    for number, line in enumerate(lines, 1):
        if PLACES.search(line):
            yield number, "speaks of a place that only exists on somebody's machine or network"
        if pure.suffix not in (".cpp", ".h"):
            continue
        if include := INCLUDE.match(line):
            if problem := check_include(root, path, *include.groups()):
                yield number, problem
        if named := TYPE_NAME.match(line):
            for word in words(named.group(1)):
                if word in BANNED:
                    yield number, f"the name {named.group(1)} says nothing ({word})"


def files_of(root):
    """What is or would be in the repository; in a tree that is none, everything but build/."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
            check=True, capture_output=True, text=True)
        names = listed.stdout.splitlines()
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
        names = [n for n in names if not re.match(r"(build|\.git)/|.*(node_modules|__pycache__)/", n)]
    return sorted(n for n in names if (root / n).is_file())


def check_tree(root):
    problems, checked, headers = [], 0, 0
    for path in files_of(root):
        checked += 1
        headers += path.endswith(".h")
        problems += [f"{path}:{number}: {text}" for number, text in check_file(root, path)]
    return problems, checked, headers


# What the self-test plants: (file, its text, what must be said about it; None: nothing).
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
PLANTED = [
    ("engine/include/fencekv/store.h", SPDX + "#include <vector>\n", None),
    ("client/include/fencekv/client.h", SPDX + '#include "fencekv/store.h"\n', None),
    ("engine/core/record.h", SPDX + '#include "fencekv/store.h"\n#include <cstdint>\n', None),
    ("engine/core/rules.h", SPDX + '#include "engine/core/record.h"\n', None),
    ("engine/rocksdb/store_reader.h", SPDX + "#include <rocksdb/db.h>\n", None),
    ("server/resp/parser.h", SPDX + '#include "fencekv/store.h"\n', None),
    ("server/session.cpp", SPDX + '#include <boost/asio.hpp>\n#include "server/resp/parser.h"\n', None),
    ("tools/admin/dump.cpp", SPDX + '#include "engine/core/record.h"\n'
     '#include "engine/rocksdb/store_reader.h"\n', None),
    ("engine/include/fencekv/up.h", SPDX + '#include "engine/core/record.h"\n',
     "engine/include may not include engine/core/record.h"),
    ("engine/core/down.cpp", SPDX + '#include "engine/rocksdb/store_reader.h"\n',
     "engine/core may not include engine/rocksdb/store_reader.h"),
    ("engine/core/rocks.cpp", SPDX + "#include <rocksdb/slice.h>\n",
     "engine/core may not include <rocksdb/slice.h>"),
    ("engine/memory/asio.cpp", SPDX + "#include <boost/asio.hpp>\n",
     "engine/memory may not include <boost/asio.hpp>"),
    ("server/core.cpp", SPDX + '#include "engine/core/record.h"\n',
     "server may not include engine/core/record.h"),
    ("server/backend.cpp", SPDX + '#  include "engine/rocksdb/store_reader.h"\n',
     "server may not include engine/rocksdb/store_reader.h"),
    ("server/guest.cpp", SPDX + '#include "fencekv/client.h"\n',
     "server may not include client/include/fencekv/client.h"),
    ("server/resp/socket.cpp", SPDX + "#include <boost/asio.hpp>\n",
     "server/resp may not include <boost/asio.hpp>"),
    ("client/core.cpp", SPDX + '#include "engine/core/record.h"\n',
     "client may not include engine/core/record.h"),
    ("client/session.cpp", SPDX + '#include "server/session.cpp"\n',
     "client may not include server/session.cpp"),
    ("tools/admin/rules.cpp", SPDX + '#include "engine/core/rules.h"\n',
     "tools/admin may not include engine/core/rules.h"),
    ("tests/unit/rocks.cpp", SPDX + "#include <rocksdb/db.h>\n", "tests may not include <rocksdb/db.h>"),
    ("server/lost.cpp", SPDX + '#include "boost/asio.hpp"\n', "is no file of this project"),
    ("server/bare.cpp", "int x;\n", "the SPDX line is missing"),
    ("tools/bare.sh", "#!/bin/sh\ntrue\n", "the SPDX line is missing"),
    ("server/string_utils.cpp", SPDX, "the name string_utils.cpp says nothing"),
    ("server/names.cpp", SPDX + "class SessionManager {};\n", "the name SessionManager says nothing"),
    ("README.md", "see /ro" + "ot/notes\n", "speaks of a place"),
]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text, _ in PLANTED:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        problems, _, _ = check_tree(root)
    missed = [f"not found: {path}: {said}" for path, _, said in PLANTED
              if said and not any(p.startswith(path + ":") and said in p for p in problems)]
    wrong = [f"wrongly found: {p}" for path, _, said in PLANTED if not said
             for p in problems if p.startswith(path + ":")]
    for line in missed + wrong:
        print(line)
    expected = sum(1 for _, _, said in PLANTED if said)
    print(f"{expected - len(missed)} of {expected} planted violations found, "
          f"{len(wrong)} false alarms")
    return 1 if missed or wrong or len(problems) != expected else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    problems, checked, headers = check_tree(Path(sys.argv[1]).resolve())
    for line in problems:
        print(line)
    print(f"{checked} files checked, {headers} headers, {len(problems)} violations")
    # A tree without headers is a wrong ROOT, not a clean one.
    return 1 if problems or headers == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
