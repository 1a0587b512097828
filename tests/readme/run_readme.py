#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what README.md shows, and compares what it prints with what README.md shows.

    run_readme.py KIND --readme README.md --server BIN --admin BIN --run BIN
        [--program BIN ...] [--node FOLDER]

KIND is the language of the blocks to run: console, python, js, go, cpp or toml. Each runs on a fresh
server of its own. In shown output `…` stands for anything on that line, and the port 7433 for the one
that is used. A block may be preceded by one of

    <!-- readme: server -->          a program that goes on running: it must print what is shown
    <!-- readme: build -->           a build of this project: scripts, presets and targets must exist
    <!-- readme: not run: REASON --> printed, not run

A block `output` shows what the block above it prints. A block `text` is a picture. There is no other.
cpp blocks are built with the project: --extract writes them as files, --program names what was built.
With KIND = blocks it is checked that every block is one of these.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
from live_server import live_server, skip  # noqa: E402

PORT = "7433"
KINDS = {"console", "python", "js", "go", "cpp", "toml"}
SILENT = {"text", "output", "cmake"}


class Block:
    def __init__(self, line, kind, text, directive):
        self.line, self.kind, self.text, self.directive = line, kind, text, directive
        self.output = None


def blocks_of(readme):
    """All fenced blocks, each with the directive above it; an `output` block goes to the one before."""
    blocks, directive, lines = [], "", readme.read_text(encoding="utf-8").split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if found := re.fullmatch(r"<!-- readme: (.*) -->", line.strip()):
            directive = found[1]
        elif line.startswith("```"):
            end = lines.index("```", at + 1)
            block = Block(at + 1, line[3:].strip(), "\n".join(lines[at + 1:end]) + "\n", directive)
            if block.kind == "output":
                blocks[-1].output = block.text
            blocks.append(block)
            directive, at = "", end
        elif line.strip():
            directive = ""
        at += 1
    return blocks


def matches(shown, printed):
    pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", shown))
    return re.fullmatch(pattern, printed) is not None


def compare(block, shown, printed):
    """Whether `printed` is what README shows; says so if not."""
    shown_lines = shown.rstrip("\n").split("\n")
    printed_lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    if len(shown_lines) == len(printed_lines) and all(map(matches, shown_lines, printed_lines)):
        return True
    print(f"README.md:{block.line}: this is shown:\n{shown}\nthis is printed:\n{printed}")
    return False


def commands_of(block):
    """(command, shown output) pairs of a console block. A command may go on after a backslash."""
    pairs = []
    for line in block.text.rstrip("\n").split("\n"):
        if pairs and pairs[-1][0].endswith("\\\n"):
            pairs[-1][0] += line + ("\n" if line.endswith("\\") else "")
        elif line.startswith("$ "):
            pairs.append([line[2:] + ("\n" if line.endswith("\\") else ""), ""])
        elif pairs:
            pairs[-1][1] += line + "\n"
        else:
            raise ValueError(f"README.md:{block.line}: output without a command")
    return pairs


def check_build(block, root):
    """A build block: what it names is there. The build itself is what this test runs in."""
    presets = json.loads((root / "CMakePresets.json").read_text())
    known = {p["name"] for kind in ("configurePresets", "buildPresets", "testPresets") for p in presets[kind]}
    lists = "\n".join(f.read_text() for f in root.rglob("CMakeLists.txt") if "build" not in f.parts)
    wrong = []
    for command, _ in commands_of(block):
        for preset in re.findall(r"--preset[ =](\S+)", command):
            if preset not in known:
                wrong.append(f"no preset {preset}")
        for target in (re.findall(r"--target((?: [\w-]+)+)", command) or [""])[0].split():
            if not re.search(rf"add_executable\({re.escape(target)}\b", lists):
                wrong.append(f"no target {target}")
        script = command.split()[0]
        if "/" in script and not os.access(root / script, os.X_OK):
            wrong.append(f"no script {script}")
    for text in wrong:
        print(f"README.md:{block.line}: {text}")
    return not wrong


class Console:
    """Runs console blocks in a fresh folder, with the programs as somebody finds them after the build."""

    def __init__(self, chosen, folder):
        self.root = Path(chosen.readme).resolve().parent
        self.folder, self.port, self.servers = folder, None, []
        shims = folder / "shims"
        shims.mkdir()
        self.shim(shims / "fencekv-admin", f'exec "{chosen.admin}" "$@"')
        # On the port of the server here, where the README's reader has the default.
        self.shim(shims / "fencekv-run", f'exec "{chosen.run}" --port "$README_PORT" "$@"')
        # Any free port, so that tests can run side by side and beside a server of the reader's own.
        self.shim(shims / "fencekv-server",
                  f'case "$*" in *--help*|*--check-config*|*--port*) exec "{chosen.server}" "$@";; esac\n'
                  f'exec "{chosen.server}" --port 0 "$@"')
        # As on a terminal: with types, as the README shows them.
        if cli := shutil.which("redis-cli"):
            self.shim(shims / "redis-cli", f'exec "{cli}" --no-raw "$@"')
        self.environment = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}", "NO_COLOR": "1"}
        self.work = folder / "work"
        self.work.mkdir()

    @staticmethod
    def shim(path, text):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def serve(self, block):
        [(command, shown)] = commands_of(block)
        server = subprocess.Popen("exec " + command, shell=True, cwd=self.work, env=self.environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        self.servers.append(server)
        printed = server.stdout.readline()
        if found := re.search(r":(\d+)$", printed.strip()):
            self.port = self.environment["README_PORT"] = found[1]
            printed = printed.replace(self.port, PORT)
        return compare(block, shown, printed)

    def run(self, block):
        good = True
        for command, shown in commands_of(block):
            done = subprocess.run(["bash", "-c", command.replace(PORT, self.port or PORT)], cwd=self.work,
                                  env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
            print(f"$ {command}\n{done.stdout}", end="")
            good &= compare(block, shown, done.stdout.replace(self.port or PORT, PORT))
        return good

    def close(self):
        good = True
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                code = server.wait()
            if code != 0:
                print(f"a server ended with {code}")
                good = False
        return good


def run_console(chosen, blocks):
    if not shutil.which("redis-cli"):
        skip("redis-cli is not installed (Debian: redis-tools)")
    folder = Path(tempfile.mkdtemp(prefix="fencekv-readme-"))
    good = True
    console = Console(chosen, folder)
    try:
        for block in blocks:
            if block.directive == "build":
                good &= check_build(block, console.root)
            elif block.directive == "server":
                good &= console.serve(block)
            else:
                good &= console.run(block)
    finally:
        good &= console.close()
        shutil.rmtree(folder, ignore_errors=True)
    return good


def run_snippets(chosen, blocks):
    kind = chosen.kind
    if kind == "go" and not shutil.which("go"):
        skip("go is not installed")
    if kind == "js" and not shutil.which("node"):
        skip("node is not installed")
    if kind == "js" and not (Path(chosen.node) / "node_modules").is_dir():
        skip(f"{chosen.node}/node_modules is not there: npm did not install it")
    if kind == "python" and subprocess.run([sys.executable, "-c", "import redis"], check=False,
                                           stderr=subprocess.DEVNULL).returncode != 0:
        skip(f"{sys.executable} has no module redis (Debian: python3-redis)")
    good, programs = True, iter(chosen.program)
    with live_server(chosen.server) as (_, port, _), tempfile.TemporaryDirectory() as folder:
        for block in blocks:
            text = block.text.replace(PORT, str(port))
            environment = {**os.environ, "README_PORT": str(port), "GOCACHE": f"{folder}/cache", "HOME": folder,
                           "GO111MODULE": "off"}
            if kind == "cpp":
                command = [next(programs)]
            elif kind == "python":
                command = [sys.executable, "-c", text]
            elif kind == "js":
                # Beside node_modules, since that is where Node.js looks for packages.
                file = Path(chosen.node) / "readme_snippet.mjs"
                file.write_text(text)
                command = ["node", str(file)]
            else:
                file = Path(folder) / "snippet.go"
                file.write_text(text)
                command = ["go", "run", str(file)]
            done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, timeout=120, check=False)
            if done.returncode != 0:
                print(f"README.md:{block.line}: ended with {done.returncode}\n{done.stderr}")
                good = False
            good &= compare(block, block.output or "", done.stdout.replace(str(port), PORT))
    return good


def run_toml(chosen, blocks):
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks:
            # The paths of the README are those of a real machine, so that they do not exist here.
            for word in re.findall(r'"(/[^"]+)"', block.text):
                block.text = block.text.replace(word, folder + "/" + Path(word).name)
            password = Path(folder) / "password"
            password.write_text("secret\n")
            password.chmod(0o600)
            file = Path(folder) / "fencekv.toml"
            file.write_text(block.text)
            done = subprocess.run([chosen.server, "--config", str(file), "--check-config"], text=True,
                                  capture_output=True, timeout=60, check=False)
            if done.returncode != 0:
                print(f"README.md:{block.line}: {done.stdout}{done.stderr}")
                good = False
    return good


def extract(blocks, folder):
    """Writes each block as a source file that finds the port at run time. Unchanged files stay."""
    for number, block in enumerate(blocks, 1):
        file = folder / f"readme_cpp_{number}.cpp"
        text = "#include <cstdlib>\n" + block.text.replace(PORT, 'static_cast<unsigned short>(std::atoi(std::getenv("README_PORT")))')
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        yield str(file)


def check_blocks(blocks):
    """Nothing in README.md is left out by accident."""
    good = True
    for block in blocks:
        if block.kind not in KINDS | SILENT:
            print(f"README.md:{block.line}: nobody runs a block of the kind '{block.kind}'")
            good = False
        if block.directive not in ("", "server", "build") and not block.directive.startswith("not run: "):
            print(f"README.md:{block.line}: unknown directive '{block.directive}'")
            good = False
        if block.directive.startswith("not run: "):
            print(f"README.md:{block.line}: {block.directive}")
    ran = [b for b in blocks if b.kind in KINDS and not b.directive.startswith("not run")]
    print(f"{len(ran)} of {len(blocks)} blocks are run")
    return good and len(ran) > 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kind", choices=sorted(KINDS | {"blocks"}))
    arguments.add_argument("--readme", required=True)
    arguments.add_argument("--server", default="")
    arguments.add_argument("--admin", default="")
    arguments.add_argument("--run", default="")
    arguments.add_argument("--node", default=".")
    arguments.add_argument("--program", action="append", default=[], help="a cpp block, built; in order")
    arguments.add_argument("--extract", help="write the cpp blocks as files to this folder, and list them")
    chosen = arguments.parse_args()

    blocks = blocks_of(Path(chosen.readme))
    if chosen.kind == "blocks":
        return 0 if check_blocks(blocks) else 1
    mine = [b for b in blocks if b.kind == chosen.kind and not b.directive.startswith("not run")]
    if not mine:
        print(f"README.md has no {chosen.kind} block")
        return 1
    if chosen.extract:
        print(";".join(extract(mine, Path(chosen.extract))))
        return 0
    run = {"console": run_console, "toml": run_toml}.get(chosen.kind, run_snippets)
    if not run(chosen, mine):
        return 1
    print(f"{len(mine)} {chosen.kind} blocks do what README.md shows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
