//! `chappe dds keys`: the files of DDS Security for a participant.

use crate::cli::DdsKeys;
use crate::output::{Failure, Outcome};

/// Makes the files, and prints the section of the configuration that names them.
#[cfg(feature = "dds-security")]
pub(crate) fn run(flags: &DdsKeys, json: bool) -> Outcome {
    use std::time::{Duration, SystemTime};

    use chappe_dds::keys::{Admission, KeysError, admit};

    use crate::output;

    let topics = match flags.topics.as_slice() {
        [] => vec!["*".to_owned()],
        some => some.to_vec(),
    };
    let admission = Admission {
        name: flags.name.clone(),
        topics,
        until: SystemTime::now() + Duration::from_secs(u64::from(flags.days) * 86_400),
    };
    let directory =
        std::path::absolute(&flags.directory).unwrap_or_else(|_| flags.directory.clone());
    let files = admit(&directory, &admission).map_err(|error| {
        let hint = match &error {
            KeysError::Exists(path) => Some(format!(
                "choose another name, or remove it: rm -r {}",
                path.display()
            )),
            _ => None,
        };
        Failure::new(error.to_string())
            .coded("dds_failed")
            .hint_if(hint)
    })?;
    if json {
        output::json(&serde_json::json!(files));
        return Ok(());
    }
    let text = |path: &std::path::Path| serde_json::json!(path).to_string();
    output::line(format_args!(
        "[dds.security]\nidentity_ca = {}\ncertificate = {}\nprivate_key = {}\npermissions_ca = {}\ngovernance = {}\n\
         permissions = {}",
        text(&files.identity_ca),
        text(&files.certificate),
        text(&files.private_key),
        text(&files.permissions_ca),
        text(&files.governance),
        text(&files.permissions),
    ));
    Ok(())
}

/// Refused: this program has no plugins of DDS Security.
#[cfg(not(feature = "dds-security"))]
pub(crate) fn run(flags: &DdsKeys, _: bool) -> Outcome {
    let DdsKeys {
        directory,
        name,
        topics,
        days,
    } = flags;
    let failure = Failure::new(format!(
        "no files for {name} in {} (topics {topics:?}, {days} days): this program was built without DDS Security",
        directory.display()
    )).coded("not_built_in");
    Err(failure
        .hint("build it with `--features dds-security`, or with `full`, which packages have"))
}
