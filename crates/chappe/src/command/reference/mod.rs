//! `chappe reference`: the generated pages of the reference, `docs/reference/`.
//!
//! Each page is written from what the program itself uses: the command line from clap, settings from the JSON Schemas,
//! REST operations from the OpenAPI document, metrics from their registry, functions of SQL and codes from their tables.
//! A test compares the pages in the documentation with those of the built program.

mod command_line;
mod lists;
mod markdown;
mod rest;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::output::{self, Outcome};

/// Writes all pages to a directory.
pub(crate) fn run(directory: &Path) -> Outcome {
    output::folder(directory)?;
    for (name, page) in [
        ("cli", command_line::page()),
        ("configuration", settings::configuration()),
        ("wrappers", settings::wrappers()),
        ("metrics", lists::metrics()),
        ("codes", lists::codes()),
        ("sql-functions", lists::sql_functions()),
        ("rest", rest::page()),
    ] {
        output::file(&directory.join(format!("{name}.md")), &page)?;
    }
    Ok(())
}

/// The members of an object by their names, in an order that no feature of the library changes.
fn members(object: &Value) -> BTreeMap<&str, &Value> {
    let members = object.as_object().into_iter().flatten();
    members
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}
