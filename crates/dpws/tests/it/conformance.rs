//! Goal: docs/evidence/dpws-conformance.md names only tests that exist.
//!
//! Method: looks for the function of each `crate/file.rs::test` in the file.

use std::path::Path;

#[test]
fn named_tests_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let document = crates
        .with_file_name("docs")
        .join("evidence/dpws-conformance.md");
    let document = std::fs::read_to_string(document).unwrap();
    let words = document.split('`').skip(1).step_by(2);
    let named = words.filter(|word| word.contains(".rs::"));
    let mut count = 0;
    for word in named {
        let (file, test) = word.split_once("::").unwrap();
        let (name, path) = file.split_once('/').unwrap();
        let folder = crates.join(name);
        let folder = match path.starts_with("src/") {
            true => folder,
            false => folder.join("tests/it"),
        };
        let text = std::fs::read_to_string(folder.join(path));
        let text = text.unwrap_or_else(|error| panic!("{word}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{word}");
        count += 1;
    }
    assert!(count > 100, "{count} tests are named");
}
