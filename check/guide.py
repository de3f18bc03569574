#!/usr/bin/env python3
"""Runs the shell blocks of the tutorial and the how-to pages against the built program.

    check/guide.py PROGRAM [--write] [--jobs N] [--keep] [PAGE...]

Without pages: all of docs/tutorial and docs/how-to. The blocks of a page run in order, in one shell (bash), in an empty
directory that is also HOME; `chappe` is PROGRAM. The pages of the tutorial share one directory and one shell: each begins
where the one before it ended. As root each page has a network of its own, with loopback and no way out, so pages run at the
same time. Otherwise they run on this machine's loopback, one after another.

Blocks
    ```console   commands after `$ `, continued by a backslash or by lines after `> `; the other lines are the output, which
                 must be as shown. A command without shown lines prints nothing.
    ```sh        a script. Each command must succeed; the output is not compared.
    `COMMAND &`  runs in the background. The shown lines must appear in its output in this order, and the page continues
                 when they have. It is ended by its process group at the end of the page.

Marks: an HTML comment before a block, or before the title for the whole page; several are separated by `;`
    needs: mosquitto root   commands that must be installed, and `root`, `systemd` (as the init system), `dds` (in the program),
                            `python:MODULE`, `source` (this checkout, as ~/chappe), and what no machine that runs checks has:
                            `network` (the internet), `other:WHAT`. Otherwise the block is skipped, with the reason
    file: sensors/warm.toml the block, in any language, is saved as this file; the text of the page has to name it
    in: plant               the shell goes to this directory, in place of a machine of its own; `.` is the page's directory
    addresses: 192.0.2.7    of the page: addresses of an interface in the page's network; needs root
    repeat                  its commands are repeated until the output is as shown, for at most 60 s
    exit: 1                 its last command ends with this code
    numbers vary            numbers in the output are not compared, nor the plural of what they count
    any order               the lines of the output may be in any order

What is compared: lines without differences in blanks, runs of dashes, times, durations and sizes, IPv4 addresses and ports,
UUIDs, hexadecimal numbers of at least 12 digits, keys of 40 characters (CURVE; not `NAME=/PATH`) and tokens. The page's directory is shown as
/home/ada. `…` in a shown line stands for any text, and a line of `…` alone for any lines.

--write puts the real output into blocks that differ. Exit code 1 when a page differs.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME = "/home/ada"
# reason: the slowest page starts four programs one after another; a busy machine takes several times as long.
PAGE_S = 240
COMMAND_S = 90
REPEAT_S = 60
# reason: a link that was refused once tries again after a second, so asking more often shows nothing sooner.
POLL_S = 0.5
MARKS = {"needs", "file", "in", "addresses", "repeat", "exit", "numbers vary", "any order"}


class Differs(Exception):
    """A page differs from its program."""


@dataclasses.dataclass
class Command:
    text: str
    first: int  # lines of the page that show its output: from here
    end: int  # to here, this one excluded


@dataclasses.dataclass
class Block:
    line: int
    language: str
    body: list[str]
    marks: dict[str, str]


# ---- Pages -----------------------------------------------------------------------------------------------------------

def marks_of(comment: str, where: str) -> dict[str, str]:
    found = {}
    for part in comment.split(";"):
        key, _, value = part.strip().partition(":")
        if key not in MARKS:
            raise Differs(f"{where}: unknown mark `{key}`")
        found[key] = value.strip()
    return found


def is_mark(line: str) -> bool:
    return line.startswith("<!-- ") and line.endswith(" -->")


def read_page(path: pathlib.Path) -> tuple[list[str], dict[str, str], list[Block]]:
    """Returns the lines of a page, the marks of the page and its blocks."""
    lines = path.read_text().split("\n")
    page_marks: dict[str, str] = {}
    blocks = []
    pending: dict[str, str] = {}
    number = 0
    has_title = False
    while number < len(lines):
        line = lines[number]
        if is_mark(line):
            pending |= marks_of(line[5:-4], f"{path.name}:{number + 1}")
        elif line.startswith("```"):
            end = next((n for n in range(number + 1, len(lines)) if lines[n].startswith("```")), None)
            if end is None:
                raise Differs(f"{path.name}:{number + 1}: the block has no end")
            blocks.append(Block(number + 1, line[3:].strip(), lines[number + 1:end], pending))
            pending, number = {}, end
        elif line.startswith("# ") and not has_title:
            has_title, page_marks, pending = True, pending, {}
        elif line.strip():
            pending = {}
        number += 1
    return lines, page_marks, blocks


def commands_of(block: Block) -> list[Command]:
    """Divides a console block into commands and the lines that they print."""
    commands: list[Command] = []
    number = 0
    while number < len(block.body):
        line = block.body[number]
        if not line.startswith("$ "):
            if not commands:
                raise Differs(f"line {block.line + number + 1}: a console block starts with `$ `")
            commands[-1].end = block.line + number + 1
            number += 1
            continue
        text = [line[2:]]
        number += 1
        while number < len(block.body) and (block.body[number].startswith("> ") or text[-1].endswith("\\")):
            text.append(block.body[number].removeprefix("> "))
            number += 1
        commands.append(Command("\n".join(text), block.line + number, block.line + number))
    return commands


# ---- Comparison ------------------------------------------------------------------------------------------------------

PATTERNS = [
    (r"(?<!\S)(?!\w+=/)\S{40}(?!\S)", "KEY"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?|\b\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
    (r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "UUID"),
    (r"\b[0-9a-fA-F]{12,}\b", "HEX"),
    (r"(?<![\w-])[A-Za-z0-9_-]{43}(?![\w-])", "TOKEN"),
    (r"\b\d{1,3}(\.\d{1,3}){3}(:\d{1,5})?\b", "ADDRESS"),
    (r"\blocalhost:\d{2,5}\b", "ADDRESS"),
    (r"(?<![\w.])\d[\d,]*(\.\d+)? ?(ns|µs|us|ms|s|min|h|d|days?|hours?|minutes?|seconds?|B|bytes|kB|MB|GB|TB|KiB|MiB|GiB|TiB)\b",
     "QUANTITY"),
    (r"-{2,}|─+", "-"),
    (r"\s+", " "),
]
NUMBER = r"(?<![\w.])[+-]?\d[\d,]*(\.\d+)?([eE][+-]?\d+)?(?![\w])"


def normal(line: str, numbers_vary: bool) -> str:
    for pattern, name in PATTERNS:
        line = re.sub(pattern, name, line)
    if numbers_vary:
        line = re.sub(NUMBER, "NUMBER", line)
        # One of something has no plural.
        line = re.sub(r"(?<=NUMBER )([a-z]+?)s\b", r"\1", line)
    return line.strip()


def expected(lines: list[str], numbers_vary: bool) -> list[re.Pattern | None]:
    """Returns an expression for each shown line; None stands for any lines."""
    return [None if line.strip() == "…" else
            re.compile(".*".join(re.escape(part) for part in normal(line, numbers_vary).split("…")))
            for line in lines]


def trimmed(text: str, home: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace(home, HOME).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def agree(patterns: list[re.Pattern | None], lines: list[str]) -> bool:
    if not patterns:
        return not lines
    if patterns[0] is None:
        return any(agree(patterns[1:], lines[start:]) for start in range(len(lines) + 1))
    return bool(lines) and bool(patterns[0].fullmatch(lines[0])) and agree(patterns[1:], lines[1:])


def agree_in_any_order(patterns: list[re.Pattern | None], lines: list[str]) -> bool:
    rest = list(lines)
    for pattern in filter(None, patterns):
        found = next((line for line in rest if pattern.fullmatch(line)), None)
        if found is None:
            return False
        rest.remove(found)
    return not rest or None in patterns


def appeared(patterns: list[re.Pattern | None], lines: list[str]) -> bool:
    """Whether lines that agree with the patterns appeared in this order, maybe with others between them."""
    rest = iter(lines)
    return all(any(pattern.fullmatch(line) for line in rest) for pattern in patterns if pattern)


# ---- The shell of a page ---------------------------------------------------------------------------------------------

class Shell:
    """A bash that runs one command after another, in a network of its own if it can have one."""

    def __init__(self, program: pathlib.Path, home: pathlib.Path, addresses: list[str], own_network: bool):
        self.home = home
        self.until = time.monotonic() + PAGE_S
        self.logs: list[pathlib.Path] = []
        tools = home / ".tools"
        tools.mkdir()
        (tools / "chappe").symlink_to(program)
        laboratory = program.with_name("chappe-lab")
        if laboratory.exists():
            (tools / "chappe-lab").symlink_to(laboratory)
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("CHAPPE_") and key not in ("TMPDIR", "NOTIFY_SOCKET")}
        environment |= {"HOME": str(home), "PATH": f"{tools}:{environment['PATH']}", "LC_ALL": "C.UTF-8",
                        "TERM": "dumb", "COLUMNS": "120"}
        setup = "set -m; exec 3>&1"
        shell = ["bash", "--noprofile", "--norc"]
        if own_network:
            shell = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *shell]
            setup += "; ip link set lo up; ip route add 239.0.0.0/8 dev lo"
            if addresses:
                setup += "; ip link add eth0 type veth peer name far0; ip link set far0 up; ip link set eth0 up"
                setup += "".join(f"; ip addr add {address}/24 dev eth0" for address in addresses)
        self.process = subprocess.Popen(shell, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.answers = b""
        self._send(setup)
        self.run("true")

    def _send(self, text: str) -> None:
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Differs("the shell has ended") from None

    def _answer(self, limit_s: float) -> str:
        until = min(self.until, time.monotonic() + limit_s)
        while b"\n" not in self.answers:
            if not self.selector.select(max(0.0, until - time.monotonic())):
                raise Differs(f"no end within {limit_s:.0f} s" if time.monotonic() < self.until else
                              f"the page takes longer than {PAGE_S} s")
            received = os.read(self.process.stdout.fileno(), 4096)
            if not received:
                raise Differs("the shell has ended: a command of the script failed")
            self.answers += received
        line, _, self.answers = self.answers.partition(b"\n")
        return line.decode()

    def run(self, text: str, directory: pathlib.Path | None = None, strict: bool = False) -> tuple[str, int]:
        """Runs a command in this directory, or where the shell is; a strict one ends with its first failure.

        Returns its output and its exit code."""
        output = self.home / ".tools" / "output"
        before, after = ("set -e", "set +e") if strict else ("", "")
        enter = f"cd {directory}" if directory else ""
        self._send(f"{enter}\n{before}\n{{ {text}\n}} >{output} 2>&1 </dev/null\ncode=$?\n{after}\necho $code >&3")
        try:
            code = int(self._answer(COMMAND_S))
        except Differs as failure:
            printed = output.read_text(errors="replace") if output.exists() else ""
            raise Differs(f"{failure}\n{indented(printed)}") from None
        return output.read_text(errors="replace"), code

    def start(self, text: str, directory: pathlib.Path | None) -> pathlib.Path:
        """Starts a command in the background; returns the file of its output."""
        log = self.home / ".tools" / f"background-{len(self.logs)}"
        self.logs.append(log)
        log.touch()
        self.run(f"{text} >{log} 2>&1 &", directory)
        return log

    def stop(self) -> None:
        """Ends the background commands and the shell, each by its own process group."""
        try:
            self._send("for group in $(jobs -p); do kill -TERM -- -$group; done; wait; echo ended >&3")
            self.until = time.monotonic() + 15
            self._answer(15)
        except Differs:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def indented(text: str) -> str:
    return "\n".join(f"      | {line}" for line in text.rstrip("\n").split("\n")[-40:])


# ---- One page --------------------------------------------------------------------------------------------------------

class Page:
    def __init__(self, path: pathlib.Path, program: pathlib.Path, own_network: bool, write: bool):
        self.path, self.program, self.own_network, self.write = path, program, own_network, write
        self.lines, self.marks, self.blocks = read_page(path)
        self.replaced: list[tuple[int, int, list[str]]] = []
        self.ran = 0
        self.skipped: list[str] = []
        self.failures: list[str] = []

    def missing(self, marks: dict[str, str]) -> str:
        for need in marks.get("needs", "").split():
            if need == "root":
                absent = "" if os.geteuid() == 0 else "not root"
            elif need == "systemd":
                absent = "" if os.path.isdir("/run/systemd/system") and not self.own_network else "systemd does not run here"
            elif need == "dds":
                absent = "" if has_dds(self.program) else "the program was built without DDS"
            elif need.startswith("python:"):
                absent = "" if has_module(need[7:]) else f"python3 has no module {need[7:]}"
            elif need.startswith("other:"):
                absent = f"needs {need[6:]}"
            elif need == "network":
                absent = "needs the internet"
            elif need == "source":
                absent = ""
            else:
                absent = "" if shutil.which(need) else f"{need} is not installed"
            if absent:
                return absent
        if marks.get("addresses") and not self.own_network:
            return "addresses of its own need root"
        return ""

    def run(self, shell: Shell, home: pathlib.Path) -> None:
        shell.until = time.monotonic() + PAGE_S
        try:
            for block in self.blocks:
                self.run_block(shell, block, home)
        except Differs as failure:
            self.failures.append(str(failure))
        if self.write and self.replaced:
            for first, end, output in reversed(self.replaced):
                self.lines[first:end] = output
            self.path.write_text("\n".join(self.lines))

    def run_block(self, shell: Shell, block: Block, home: pathlib.Path) -> None:
        directory = home / block.marks.get("in", "")
        directory.mkdir(exist_ok=True)
        enter = directory if "in" in block.marks else None
        name = block.marks.get("file")
        is_shell = block.language in ("sh", "console")
        reason = self.missing(block.marks)
        if reason:
            self.skipped.append(f"{self.path.name}:{block.line}: {reason}")
            return
        try:
            if name:
                if not any(name in line and not is_mark(line) for line in self.lines):
                    raise Differs(f"the text does not name the file {name}")
                file = directory / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("\n".join(block.body) + "\n")
            elif is_shell:
                self.ran += 1
                if block.language == "sh":
                    output, code = shell.run("\n".join(block.body), enter, strict=True)
                    if code:
                        raise Differs(f"exit code {code}\n{indented(output)}")
                else:
                    self.run_console(shell, block, enter)
        except Differs as failure:
            raise Differs(f"line {block.line}: {failure}") from None

    def run_console(self, shell: Shell, block: Block, directory: pathlib.Path | None) -> None:
        commands = commands_of(block)
        numbers_vary = "numbers vary" in block.marks
        for command in commands:
            shown = self.lines[command.first:command.end]
            patterns = expected(trimmed("\n".join(shown), HOME), numbers_vary)
            wanted = int(block.marks.get("exit", 0)) if command is commands[-1] else 0
            in_background = command.text.endswith(" &")
            log = shell.start(command.text[:-2], directory) if in_background else None
            until = time.monotonic() + (REPEAT_S if in_background or "repeat" in block.marks else 0)
            while True:
                output, code = (log.read_text(errors="replace"), 0) if log else shell.run(command.text, directory)
                output = trimmed(output, str(shell.home))
                lines = [normal(line, numbers_vary) for line in output]
                compare = appeared if log else agree_in_any_order if "any order" in block.marks else agree
                done = compare(patterns, lines) and code == wanted
                if done or time.monotonic() > min(until, shell.until):
                    break
                time.sleep(POLL_S)
            if done:
                continue
            if self.write:
                self.replaced.append((command.first, command.end, output))
            if code != wanted or not self.write:
                code = f", exit code {code} instead of {wanted}" if code != wanted else ""
                raise Differs(f"`{command.text}` printed something else{code}:\n" + indented("\n".join(output)))


def run_pages(pages: list[Page], keep: bool) -> None:
    """Runs pages one after another in one directory, until one fails."""
    first = pages[0]
    reason = first.missing(first.marks)
    if reason:
        first.skipped.append(f"{first.path.name}: {reason}")
        return
    home = pathlib.Path(tempfile.mkdtemp(prefix="chappe-guide-"))
    if any("source" in marks.get("needs", "").split() for marks in [first.marks, *(block.marks for block in first.blocks)]):
        (home / "chappe").symlink_to(ROOT)
    shell = Shell(first.program, home, first.marks.get("addresses", "").split(), first.own_network)
    try:
        for page in pages:
            page.run(shell, home)
            if page.failures:
                break
    finally:
        shell.stop()
        for log in shell.logs if page.failures else []:
            page.failures.append(f"output of {log.name}:\n{indented(log.read_text(errors='replace')[-2000:])}")
        for left in pages[pages.index(page) + 1:]:
            left.failures.append(f"not run: {page.path.name} failed")
        if keep:
            print(f"   {first.path.name}: kept in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def has_module(name: str) -> bool:
    return subprocess.run(["python3", "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def has_dds(program: pathlib.Path) -> bool:
    answer = subprocess.run([program, "dds", "topics", "--help"], capture_output=True, text=True, check=False)
    return answer.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the shell blocks of the guide.")
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="put the real output into blocks that differ")
    parser.add_argument("--jobs", type=int, default=3, help="pages at once, as root")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the pages")
    options = parser.parse_intermixed_args()
    own_network = os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "unshare"))
    paths = options.pages or sorted([*ROOT.glob("docs/tutorial/*.md"), *ROOT.glob("docs/how-to/*.md")])
    try:
        pages = [Page(path, options.program.absolute(), own_network, options.write) for path in paths]
    except Differs as failure:
        sys.exit(f"   FAILED: {failure}")
    tutorial = [page for page in pages if page.path.absolute().parent.name == "tutorial"]
    together = [tutorial] if tutorial else []
    together += [[page] for page in pages if page not in tutorial]
    with concurrent.futures.ThreadPoolExecutor(options.jobs if own_network else 1) as pool:
        list(pool.map(lambda pages: run_pages(pages, options.keep), together))
    for page in pages:
        if page.failures:
            print(f"   FAILED: {page.path}: " + "\n   ".join(page.failures))
        else:
            print(f"   ok: {page.path.name}, {page.ran} blocks")
    for reason in (reason for page in pages for reason in page.skipped):
        print(f"   skipped: {reason}")
    failed = sum(bool(page.failures) for page in pages)
    print(f"   {len(pages) - failed} of {len(pages)} pages, {sum(page.ran for page in pages)} blocks as shown")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
