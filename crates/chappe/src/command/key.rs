//! `chappe key`: the public keys of a node, and certificates for members of its network.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use chappe_identity::PublicKey;
use chappe_kad::Certificate;
use chappe_node::PublicIdentity;
use chappe_transport::key_file;
use serde_json::json;

use crate::cli::Key;
use crate::output::{self, Failure, Outcome, Table};

/// Runs a verb of `key`.
pub(crate) fn run(verb: Key, json: bool) -> Outcome {
    match verb {
        Key::Show { file } => show(file.as_deref(), json),
        Key::Admit { member, file, days } => admit(&member, file.as_deref(), days, json),
    }
}

fn show(file: Option<&Path>, json: bool) -> Outcome {
    let loaded = super::config::load(file, Vec::new())?;
    let directory = loaded.config.data_directory.clone();
    let recognized = chappe_node::public_identity(&loaded.config).map_err(|error| {
        let hint = error.hint();
        Failure::from(error).hint_if(hint)
    })?;
    let Some(PublicIdentity {
        key,
        curve_key,
        fingerprint,
        device_fingerprint,
    }) = recognized
    else {
        let text = format!("no key in {}", directory.display());
        let hint = "name the node's configuration: chappe key show NODE.TOML; the first start of a \
                    node makes its key";
        return Err(Failure::new(text).coded("file_unreadable").hint(hint));
    };
    if json {
        output::json(&json!({
            "key": key, "curve_key": curve_key, "fingerprint": fingerprint,
            "device_fingerprint": device_fingerprint,
        }));
        return Ok(());
    }
    let mut table = Table::new(["WHAT", "VALUE"]);
    table.row(["key of the node".to_owned(), key]);
    table.row(["CURVE key, for links".to_owned(), curve_key]);
    if let Some(fingerprint) = fingerprint {
        table.row(["certificate of https".to_owned(), fingerprint]);
    }
    if let Some(fingerprint) = device_fingerprint {
        table.row(["certificate for devices".to_owned(), fingerprint]);
    }
    output::line(table);
    Ok(())
}

/// Seconds of a day.
const DAY_S: u64 = 86_400;

fn admit(member: &PublicKey, file: Option<&Path>, days: u32, json: bool) -> Outcome {
    let loaded = super::config::load(file, Vec::new())?;
    let path = loaded.config.data_directory.join("key.pem");
    let key = key_file::read(&path).map_err(|error| {
        let hint = error.hint();
        Failure::from(error).hint_if(hint)
    })?;
    let key = key.ok_or_else(|| {
        Failure::new(format!("no key in {}", path.display()))
            .coded("file_unreadable")
            .hint("name the owner's configuration; the first start of a node makes its key")
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expires_s = now.unwrap_or_default().as_secs() + u64::from(days) * DAY_S;
    let certificate = Certificate::issue(&key, member, expires_s);
    let owner = key.public();
    if json {
        let text = certificate.to_string();
        output::json(&json!({ "owner": owner.to_string(), "certificate": text, "days": days }));
        return Ok(());
    }
    output::line(format_args!(
        "[kad]\nowner = \"{owner}\"\ncertificate = \"{certificate}\""
    ));
    Ok(())
}
