//! `chappe device record`: a device as files, to be replayed.

use chappe_device::recording::{RecordOptions, record};
use chappe_terminal::counted;
use serde_json::json;

use super::find::clean;
use super::network;
use super::session::Session;
use crate::cli::DeviceRecord;
use crate::output::{self, Failure, Outcome};

/// Describes the device, records it, and prints what the folder has.
pub(crate) fn run(flags: DeviceRecord, json: bool) -> Outcome {
    network::block_on(async {
        let session = Session::start(&flags.network)?;
        let description = session.device(&flags.device).await?;
        let options = RecordOptions {
            events: flags.events,
            calls: flags.calls.clone(),
            repeat: !flags.once,
        };
        let name = description.name().to_owned();
        output::progress(format_args!("recording {}", clean(&name)));
        let recording = record(&session.client, &description, &flags.folder, &options);
        let summary = recording.await.map_err(|error| {
            let hint = error.hint.clone();
            Failure::from(error).hint_if(hint)
        })?;
        session.close().await;
        if json {
            output::json(&json!({
                "event": "recorded", "name": name, "folder": flags.folder, "notes": summary.notes,
                "documents": summary.documents, "answers": summary.answers, "events": summary.events,
            }));
            return Ok(());
        }
        for note in &summary.notes {
            output::line(format_args!("note     {}", clean(note)));
        }
        output::line(format_args!(
            "{}: {}, {}, {} of {}",
            flags.folder.display(),
            counted(summary.documents, "document"),
            counted(summary.answers, "answer"),
            counted(summary.events, "event"),
            clean(&name)
        ));
        Ok(())
    })
}
