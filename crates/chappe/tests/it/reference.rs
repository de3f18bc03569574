//! Goal: the generated pages of the reference are those of the program.
//! Method: the built program writes them to a scratch folder, and each section is looked for in the documentation. What
//! kinds of wrappers have in common depends on which there are, so a build without all of them compares only their titles;
//! `check/peers connectors` compares the whole page.
//!
//! After a change: `cargo run -p chappe --features full -- reference docs/reference`.

use std::fs;
use std::path::Path;
use std::process::Command;

const PAGES: [&str; 7] = [
    "cli",
    "configuration",
    "wrappers",
    "metrics",
    "codes",
    "sql-functions",
    "rest",
];

/// The parts of a page that begin with a heading.
fn sections(page: &str) -> Vec<&str> {
    let starts = page.match_indices("\n## ").map(|(at, _)| at);
    let mut ends: Vec<usize> = starts.collect();
    ends.insert(0, 0);
    ends.push(page.len());
    ends.windows(2)
        .map(|it| page[it[0]..it[1]].trim())
        .collect()
}

#[test]
fn the_reference_is_that_of_the_program() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let written = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .arg("reference")
        .arg(scratch.path())
        .status();
    assert!(written.expect("the program starts").success());
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for name in PAGES {
        let file = format!("{name}.md");
        let page = fs::read_to_string(scratch.path().join(&file)).expect("the page is written");
        let known = fs::read_to_string(shipped.join(&file)).unwrap_or_default();
        let (known, own) = (sections(&known), sections(&page));
        let is_full = cfg!(all(
            feature = "coap",
            feature = "modbus",
            feature = "opcua",
            feature = "parquet",
            feature = "postgres"
        ));
        let hint = "cargo run -p chappe --features full -- reference docs/reference";
        if is_full || name != "wrappers" {
            for section in &own {
                assert!(
                    known.contains(section),
                    "{file} is not current: {hint}\n{section}"
                );
            }
            assert_eq!(known.len(), own.len(), "{file} has other sections: {hint}");
        } else {
            let title = |section: &&str| section.lines().next().map(str::to_owned);
            let known: Vec<_> = known.iter().map(title).collect();
            for section in &own {
                assert!(
                    known.contains(&title(section)),
                    "{file} lacks a kind: {hint}\n{section}"
                );
            }
        }
        assert!(own.len() > 1 || name == "metrics", "{file} has sections");
    }
}
