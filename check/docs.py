#!/usr/bin/env python3
"""Checks the documentation without building it.

    check/docs.py

Every relative link and anchor of every Markdown file leads somewhere; a page of the guide links only to pages of the guide,
because the rendered guide has no others. Every path docs/… in any file exists. Every page of the guide is in docs/SUMMARY.md,
once. docs/index.md has at most ten links, and the README fits two screens. In docs/tutorial and docs/how-to every block of
code is fenced, and shell is marked `console` or `sh`, because check/guide.py runs these, or is a file. Exit code 1 with one line for each
fault.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs"
INDEX_LINKS_MAX = 10
# reason: two screens of a terminal or a browser
README_LINES_MAX = 90
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+(\S+)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
INCLUDE = re.compile(r"^\{\{#include (\S+)\}\}$")
NAMED = re.compile(r"(?<![\w/.-])docs/[\w./-]*\.(?:md|png|svg|toml)\b")
SHELL = {"bash", "shell", "zsh", "shell-session"}
RUN = {"console", "sh"}

faults = []


def fault(path, line, text):
    faults.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def tracked(*patterns):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def lines_of(path):
    """Lines with their numbers and the kind of each: text, fence (its first line), code."""
    fence = None
    is_blank_before, in_list, is_indented = True, False, False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)(.*)", line)
        if fence:
            kind = "code"
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = None
        elif mark:
            fence, kind = mark[1], "fence"
        else:
            # Four blanks are code, except inside a list, where they continue an item.
            in_list = bool(re.match(r"\s*(?:[-*+]|\d+\.)\s", line)) or (in_list and (not line.strip() or line[0] == " "))
            deep = line.startswith("        " if in_list else "    ")
            is_indented = deep and (is_blank_before or is_indented)
            kind = "indented" if is_indented else "text"
        is_blank_before = not line.strip() and kind != "code"
        yield number, line, kind


def text_of(path):
    """The lines that are not code, without their code spans."""
    for number, line, kind in lines_of(path):
        if kind == "text":
            yield number, re.sub(r"(`+).+?\1", "`", line)


def anchors(path):
    """The identifiers of a page's headings, as mdbook and GitHub form them."""
    found = {}
    for _, line, kind in lines_of(path):
        included = INCLUDE.match(line)
        if included:
            found |= anchors(path.parent / included[1])
        heading = HEADING.match(line) if kind == "text" else None
        if heading:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).replace("`", "").lower()
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            count = found.get(slug, 0)
            found[slug] = count + 1
            if count:
                found[f"{slug}-{count}"] = 1
    return found


def check_link(path, line, target):
    if re.match(r"[a-z][a-z0-9+.-]*:", target) or "::" in target:
        return
    name, _, anchor = target.partition("#")
    full = pathlib.Path(os.path.normpath(path.parent / name)) if name else path
    if not full.exists():
        fault(path, line, f"there is no {target}")
    elif path.is_relative_to(GUIDE) and not full.is_relative_to(GUIDE):
        fault(path, line, f"{target} is not in the guide: name the file instead of linking it")
    elif anchor and full.suffix == ".md" and anchor not in anchors(full):
        fault(path, line, f"{full.name} has no heading #{anchor}")


def check_links():
    count = 0
    for path in tracked("*.md"):
        for number, line in text_of(path):
            targets = [link[1] for link in LINK.finditer(line)]
            definition = DEFINITION.match(line)
            for target in targets + ([definition[1]] if definition else []):
                count += 1
                check_link(path, number, target)
    return count


def check_named():
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for name in NAMED.findall(line):
                if not (ROOT / name).exists():
                    fault(path, number, f"there is no {name}")


def check_pages():
    summary = GUIDE / "SUMMARY.md"
    listed = [link[1] for _, line in text_of(summary) for link in LINK.finditer(line)]
    pages = {str(page.relative_to(GUIDE)) for page in tracked("docs/*.md")} - {"SUMMARY.md"}
    for page in sorted(pages - set(listed)):
        fault(GUIDE / page, 1, "is not in docs/SUMMARY.md")
    for page in sorted({page for page in listed if listed.count(page) > 1}):
        fault(summary, 1, f"lists {page} twice")
    return len(pages)


def check_sizes():
    index = GUIDE / "index.md"
    links = sum(not link[0].startswith("!") for _, line in text_of(index) for link in LINK.finditer(line))
    if links > INDEX_LINKS_MAX:
        fault(index, 1, f"has {links} links, at most {INDEX_LINKS_MAX} help a newcomer")
    readme = ROOT / "README.md"
    length = len(readme.read_text().splitlines())
    if length > README_LINES_MAX:
        fault(readme, length, f"has {length} lines, at most {README_LINES_MAX} fit two screens")


def check_blocks():
    count = 0
    for path in tracked("docs/tutorial/*.md", "docs/how-to/*.md"):
        mark = ""
        for number, line, kind in lines_of(path):
            language = line.strip().lstrip("`~").split(",")[0].strip() if kind == "fence" else ""
            count += language in RUN
            if kind == "indented" and line.strip():
                fault(path, number, "this code is not fenced, so it is not run")
            elif kind == "fence" and (language in SHELL or not language) and "file:" not in mark:
                fault(path, number, f"a block marked {language or 'nothing'!r} is not run: mark it console, sh or text")
            if line.strip():
                mark = line if line.startswith("<!--") else ""
    return count


links, pages, blocks = check_links(), check_pages(), check_blocks()
check_named()
check_sizes()
for line in faults:
    print(line)
print(f"{links} links, {pages} pages, {blocks} blocks of shell, {len(faults)} faults")
sys.exit(bool(faults))
