//! Elements of a data directory, whose node may run. Nothing in the directory is changed.

use std::path::Path;

use chappe_log::{Error as LogError, Options, Store};
use chappe_stream::trial::{ELEMENTS_MAX, TrialStream};
use chappe_stream::{StoreError, StreamLog, StreamStore, Timestamp};
use chappe_transport::ReadOnlyDisk;

use super::recorded::{Wanted, since, too_many};
use crate::command::serve;
use crate::output::Failure;

/// Reads the elements of the wanted streams that are newer than `last` before the newest one.
pub(super) fn read(
    directory: &Path,
    wanted: &[Wanted],
    last: std::time::Duration,
) -> Result<Vec<TrialStream>, Failure> {
    chappe_node::check_formats(directory).map_err(serve::failure)?;
    let path = chappe_node::log_directory(directory);
    let disk = ReadOnlyDisk::open(&path).map_err(|error| {
        Failure::new(format!("cannot read the log {}: {error}", path.display())).coded("data_unusable").hint(
            "name the data directory of a node (data_directory in its configuration), as its user",
        )
    })?;
    let options = Options {
        reserve_bytes: 0,
        ..Options::default()
    };
    let seed = chappe_transport::seed_number()?;
    let opened = Store::open(Box::new(disk), options, seed);
    let (store, _) = opened.map_err(|error| failed(error.into()))?;
    let streams = StreamStore::new(store);
    let mut logs = Vec::new();
    for one in wanted {
        let existing = streams.existing(&one.stream).map_err(failed)?;
        let log = existing.ok_or_else(|| {
            let names: Vec<String> = streams
                .streams()
                .iter()
                .map(|log| log.name().to_owned())
                .collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let near = chappe_stream::descriptor::nearest(&one.stream, &names);
            let failure = Failure::new(format!("the log has no stream {:?}", one.stream))
                .coded("stream_unknown");
            match near {
                Some(near) => failure.hint(format!("did you mean {near}?")),
                None => failure.hint(format!(
                    "list its streams: chappe data check {}",
                    directory.display()
                )),
            }
        })?;
        logs.push(log);
    }
    let mut newest = None;
    for log in &logs {
        let last = log.newest(1).map_err(failed)?;
        newest = newest.max(last.first().map(|element| element.source_time));
    }
    let from = newest.map(|newest| since(newest, last));
    let mut found = Vec::new();
    let mut count = 0;
    for (one, log) in wanted.iter().zip(&logs) {
        let stream = elements(one, log, from).map_err(failed)?;
        count += stream.elements.len();
        if count > ELEMENTS_MAX {
            return Err(too_many());
        }
        found.push(stream);
    }
    Ok(found)
}

/// The failure of an error of the log; the message of one about a newer format has a hint.
fn failed(error: StoreError) -> Failure {
    let is_newer = matches!(error, StoreError::Log(LogError::NewerFormat { .. }));
    let failure = Failure::from(error);
    match is_newer {
        true => failure.coded("newer_format"),
        false => failure,
    }
}

fn elements(
    one: &Wanted,
    log: &StreamLog,
    from: Option<Timestamp>,
) -> Result<TrialStream, StoreError> {
    let mut stream = TrialStream {
        alias: one.alias.clone(),
        stream: one.stream.as_str().into(),
        schema: log.schema(),
        elements: Vec::new(),
    };
    let Some(from) = from else {
        return Ok(stream);
    };
    let mut scan = log.scan(0, Some(from..Timestamp(i64::MAX)));
    while stream.elements.len() <= ELEMENTS_MAX
        && let Some(piece) = scan.next_undamaged(ELEMENTS_MAX)?
    {
        stream.elements.extend(piece);
    }
    Ok(stream)
}
