//! Goal: the page of format versions names each format with the version that the code writes.
//! Method: its tables are compared with the constants in the sources; each file that defines a version is on it.

use std::fs;
use std::path::{Path, PathBuf};

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Versions that other standards define.
const FOREIGN: [&str; 4] = [
    "format/src/decoders/senml.rs",
    "identity/src/certificate/mod.rs",
    "identity/src/distinguished_name.rs",
    "transport/src/tls/validity.rs",
];
/// Crates that are no part of the product.
const SIDE: [&str; 2] = ["sim", "lab"];

/// The rows of the page: version, file and constant.
fn rows() -> Vec<(u64, String, String)> {
    let page = Path::new(CRATES).join("../docs/reference/format-versions.md");
    let text = fs::read_to_string(page).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        let source = cells.last()?.trim_end_matches(" |").trim_matches('`');
        let (file, name) = source.split_once(": ")?;
        Some((
            cells.get(1)?.parse().ok()?,
            file.to_owned(),
            name.to_owned(),
        ))
    };
    text.lines().filter_map(row).collect()
}

/// The number at the end of a constant's value: `b"chappeR1"` is version 1.
fn number(value: &str) -> Option<u64> {
    let value = value.trim_end_matches(|character: char| !character.is_ascii_digit());
    let digits = value.rfind(|character: char| !character.is_ascii_digit());
    value[digits.map_or(0, |at| at + 1)..].parse().ok()
}

/// The name and the value of a constant that a line defines.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.trim_start().split_once("const ")?;
    let is_item = before.is_empty() || before.starts_with("pub");
    let (name, rest) = rest.split_once(": ")?;
    let (_, value) = rest.strip_suffix(';')?.split_once(" = ")?;
    is_item.then_some((name, value))
}

/// All constants of a file.
fn constants(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(constant)
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_page_has_the_versions_of_the_code() {
    let rows = rows();
    assert!(rows.len() > 25, "{rows:?}");
    for (version, file, name) in rows {
        let text = fs::read_to_string(Path::new(CRATES).join(&file)).unwrap_or_default();
        let mut values = constants(&text).filter(|(found, _)| *found == name);
        let (_, mut value) = values
            .next()
            .unwrap_or_else(|| panic!("{file}: no constant {name}"));
        // One constant may be another one.
        while let Some((_, other)) = constants(&text).find(|(found, _)| *found == value) {
            value = other;
        }
        assert_eq!(number(value), Some(version), "{file}: {name} = {value}");
    }
}

#[test]
fn each_version_in_the_code_is_on_the_page() {
    let rows = rows();
    let mut files = Vec::new();
    for entry in fs::read_dir(CRATES).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !SIDE.contains(&&*name) && path.join("src").is_dir() {
            sources(&path.join("src"), &mut files);
        }
    }
    let is_version = |(name, value): (&str, &str)| {
        let is_named = ["FORMAT", "VERSION", "MAGIC"].contains(&name) || name.ends_with("_VERSION");
        is_named && !value.starts_with('"') && number(value).is_some()
    };
    for path in files {
        let relative = path
            .strip_prefix(CRATES)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path).unwrap();
        if FOREIGN.contains(&&*relative) || !constants(&text).any(is_version) {
            continue;
        }
        assert!(
            rows.iter().any(|(_, file, _)| *file == relative),
            "{relative} defines a version that is not in docs/reference/format-versions.md"
        );
    }
}
