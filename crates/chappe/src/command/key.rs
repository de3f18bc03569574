//! `chappe key show`: what others recognize a node by.

use std::path::Path;

use chappe_node::Recognized;
use serde_json::json;

use crate::cli::Key;
use crate::output::{self, Failure, Outcome, Table};

/// Runs a verb of `key`.
pub(crate) fn run(verb: Key, json: bool) -> Outcome {
    match verb {
        Key::Show { file } => show(file.as_deref(), json),
    }
}

fn show(file: Option<&Path>, json: bool) -> Outcome {
    let loaded = super::config::load(file, Vec::new())?;
    let directory = loaded.config.data_directory.clone();
    let recognized = chappe_node::recognized(&loaded.config).map_err(|error| {
        let hint = error.hint();
        let failure = Failure::from(error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    let Some(Recognized {
        key,
        curve_key,
        fingerprint,
    }) = recognized
    else {
        let text = format!("there is no key in {}", directory.display());
        let hint = "name the node's configuration: chappe key show NODE.TOML; a node that has never \
                    run has none yet";
        return Err(Failure::new(text).hint(hint));
    };
    if json {
        output::json(&json!({ "key": key, "curve_key": curve_key, "fingerprint": fingerprint }));
        return Ok(());
    }
    let mut table = Table::new(["WHAT", "VALUE"]);
    table.row(["key of the node".to_owned(), key]);
    table.row(["CURVE key, for links".to_owned(), curve_key]);
    if let Some(fingerprint) = fingerprint {
        table.row(["certificate of https".to_owned(), fingerprint]);
    }
    output::line(table);
    Ok(())
}
