//! The codes of drops, dead letters, losses, problems and errors, with their causes and remedies.
//!
//! A reason in the code is a short text such as `not XML`. Its code is the same text in lower case, with `_` for
//! everything that is no letter or digit: `not_xml`. So a reason needs no registration where it is used; a test compares
//! the reasons in the sources with the tables in `codes/`, in both directions.
//!
//! A table is a text file. An entry has four lines: the code, a title, the cause, the remedy. Entries are separated by a
//! blank line, and `# TITLE` begins a section.

/// The tables, in the order of the reference.
const TABLES: [&str; 9] = [
    include_str!("../codes/program.txt"),
    include_str!("../codes/discovery.txt"),
    include_str!("../codes/devices.txt"),
    include_str!("../codes/events.txt"),
    include_str!("../codes/elements.txt"),
    include_str!("../codes/wrappers.txt"),
    include_str!("../codes/links.txt"),
    include_str!("../codes/http.txt"),
    include_str!("../codes/rest.txt"),
];

/// The page of the reference that has all codes, as a node serves it.
pub const PAGE: &str = "/docs/reference/codes.html";

/// The meaning of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// The section of the reference.
    pub section: &'static str,
    /// The code. None changes its meaning.
    pub code: &'static str,
    /// What happened, in a few words.
    pub title: &'static str,
    /// Why.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl Explanation {
    /// The address of its description in the documentation that a node serves.
    #[must_use]
    pub fn address(&self) -> String {
        address(self.code)
    }
}

/// The address of the description of a code in the documentation that a node serves.
#[must_use]
pub fn address(code: &str) -> String {
    format!("{PAGE}#{code}")
}

/// All codes, in the order of the reference.
pub fn all() -> impl Iterator<Item = Explanation> {
    let entries = TABLES.iter().flat_map(|table| table.split("\n\n"));
    let mut section = "";
    entries.filter_map(move |entry| {
        let mut lines = entry.trim().lines();
        let first = lines.next()?;
        if let Some(title) = first.strip_prefix("# ") {
            section = title;
            return None;
        }
        Some(Explanation {
            section,
            code: first,
            title: lines.next()?,
            cause: lines.next()?,
            remedy: lines.next()?,
        })
    })
}

/// The explanation of a code, or of a reason as the record of drops and the metrics show it.
///
/// ```
/// use chappe_transport::codes;
/// let found = codes::find("no multicast").unwrap();
/// assert_eq!(found.code, "no_multicast");
/// assert_eq!(found.address(), "/docs/reference/codes.html#no_multicast");
/// assert!(codes::find("nonsense").is_none());
/// ```
#[must_use]
pub fn find(text: &str) -> Option<Explanation> {
    let code = of(text);
    all().find(|one| one.code == code)
}

/// The code of a reason.
#[must_use]
pub fn of(reason: &str) -> String {
    let mut code = String::with_capacity(reason.len());
    for character in reason.trim().chars() {
        match character {
            '\'' => {}
            _ if character.is_ascii_alphanumeric() => code.push(character.to_ascii_lowercase()),
            _ if code.ends_with('_') => {}
            _ => code.push('_'),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Where reasons of drops are made; others use the same words for other things.
    const CRATES: [&str; 9] = [
        "chappe",
        "dds",
        "device",
        "dpws",
        "links",
        "node",
        "terminal",
        "transport",
        "wrappers",
    ];
    /// Calls whose first text is a reason or a code.
    const CALLS: [&str; 15] = [
        ".coded(",
        ".dropped(",
        ".lose(",
        ".lost(",
        ".record_loss(",
        ".record_unstored(",
        ".refuse_device(",
        ".refuse_with(",
        "Loss::now(",
        "Note::new(",
        "Rejected(",
        "Trouble::new(",
        "reports.dropped)(",
        "self.drop(",
        "shared.refuse(",
    ];
    /// How far after a call its first text is; reason: the arguments before it.
    const DISTANCE_MAX: usize = 120;

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_tests = path.file_stem().is_some_and(|name| name == "tests");
            match path.extension() {
                _ if is_tests => {}
                None if path.is_dir() => sources(&path, found),
                Some(ending) if ending == "rs" => found.push(path),
                _ => {}
            }
        }
    }

    /// The source files of a crate, without their tests and comments.
    fn code_of(name: &str) -> Vec<String> {
        let mut paths = Vec::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        sources(&crates.join(name).join("src"), &mut paths);
        let code = paths.iter().map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let lines = text.lines().filter(|line| !line.trim().starts_with("//"));
            lines.fold(String::new(), |all, line| all + line + "\n")
        });
        code.collect()
    }

    /// The first text in quotes.
    fn text_in(code: &str) -> Option<&str> {
        let (_, after) = code.split_once('"')?;
        after.split_once('"').map(|(text, _)| text)
    }

    /// Whether a text can be a reason: a few words, without a variable or a sentence.
    fn is_reason(text: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_ -'".contains(c);
        let starts = ["the ", "it ", "its ", "this "];
        !text.is_empty()
            && text.chars().all(is_word)
            && !starts.iter().any(|start| text.starts_with(start))
    }

    /// The texts of the arms of the functions that name a reason.
    fn arms(code: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for name in ["fn reason(", "fn label("] {
            for body in code.split(name).skip(1) {
                let body = body.split("\n    }\n").next().unwrap();
                found.extend(body.split("=> ").skip(1).filter_map(|arm| {
                    let is_text = arm.starts_with('"');
                    is_text.then(|| text_in(arm)).flatten()
                }));
            }
        }
        found
    }

    #[test]
    fn each_reason_in_the_sources_has_an_explanation() {
        let mut missing = BTreeSet::new();
        let mut count = 0;
        for name in CRATES {
            for code in code_of(name) {
                let mut reasons = arms(&code);
                for call in CALLS {
                    for after in code.split(call).skip(1) {
                        let arguments = after.split([';', '{']).next().unwrap();
                        let text = text_in(arguments).filter(|text| {
                            let before = arguments.split_once('"').map_or(0, |(it, _)| it.len());
                            before < DISTANCE_MAX && !text.is_empty()
                        });
                        reasons.extend(text);
                    }
                }
                for after in code.split("Hop::").skip(1) {
                    let second = after
                        .split_once(',')
                        .map_or("", |(_, second)| second.trim());
                    reasons.extend(second.starts_with('"').then(|| text_in(second)).flatten());
                }
                let reasons = reasons.into_iter().filter(|text| is_reason(text));
                for reason in reasons {
                    count += 1;
                    if find(reason).is_none() {
                        missing.insert(format!("{name}: {reason}"));
                    }
                }
            }
        }
        assert!(count > 200, "only {count} reasons were found");
        assert!(missing.is_empty(), "add them to codes/: {missing:#?}");
    }

    #[test]
    fn each_explained_code_is_used() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut paths = Vec::new();
        for entry in fs::read_dir(crates).unwrap() {
            sources(&entry.unwrap().path().join("src"), &mut paths);
        }
        let mut used = BTreeSet::new();
        for path in paths {
            for line in fs::read_to_string(path).unwrap().lines() {
                used.extend(line.split('"').skip(1).step_by(2).map(of));
            }
        }
        // The reasons of links are written with this prefix in the record of losses.
        let is_used = |code: &str| {
            let of_letter = code.strip_prefix("dead_letter_");
            used.contains(code) || of_letter.is_some_and(|reason| used.contains(reason))
        };
        let unused: Vec<_> = all()
            .map(|one| one.code)
            .filter(|code| !is_used(code))
            .collect();
        assert!(unused.is_empty(), "nothing uses {unused:?}");
    }

    #[test]
    fn the_tables_are_complete_and_without_repetition() {
        let mut codes = BTreeSet::new();
        for one in all() {
            assert!(!one.section.is_empty() && !one.title.is_empty(), "{one:?}");
            assert!(
                one.cause.ends_with('.') && one.remedy.ends_with('.'),
                "{one:?}"
            );
            assert_eq!(of(one.code), one.code);
            assert!(codes.insert(one.code), "{} twice", one.code);
        }
        let entries = TABLES.iter().flat_map(|table| table.split("\n\n"));
        let entries = entries.filter(|entry| !entry.trim().starts_with("# "));
        assert_eq!(entries.count(), codes.len(), "each entry has four lines");
    }

    #[test]
    fn the_page_of_the_reference_has_each_code() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/codes.md");
        let page = fs::read_to_string(page).unwrap();
        for one in all() {
            let entry = format!("### {}\n\n**{}.**", one.code, one.title);
            assert!(
                page.contains(&entry),
                "docs/reference/codes.md lacks {}",
                one.code
            );
        }
    }

    #[test]
    fn a_reason_becomes_its_code() {
        for (reason, code) in [
            ("not XML", "not_xml"),
            (
                "forged address of a tree's source",
                "forged_address_of_a_trees_source",
            ),
            ("too many one-way operations", "too_many_one_way_operations"),
            ("held_by_other", "held_by_other"),
        ] {
            assert_eq!(of(reason), code);
        }
    }
}
