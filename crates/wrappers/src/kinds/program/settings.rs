//! The keys of a wrapper of kind `program`, and what its program receives first.

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::process::Program;
use super::protocol::{line, mark_value};
use crate::decode::Decoder;
use crate::descriptor::StartKey;
use crate::{Inputs, Mark, WrapperFile};

/// The keys of a wrapper of kind `program`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    #[serde(flatten)]
    pub(super) program: Program,
    /// The form of the program's output. Default: messages.
    #[serde(default)]
    pub(super) output: Output,
    /// Whether the program prints marks. Then elements are stored with the mark that follows them,
    /// exactly once. Default: false.
    #[serde(default)]
    pub(super) marks: bool,
    /// The streams whose elements the program processes: names, or prefixes ending in `*`. Default: none.
    #[serde(default)]
    inputs: Vec<String>,
    /// Where to start with an input that was never processed. Default: first.
    #[serde(default)]
    start: StartKey,
}

/// The form of the program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Output {
    /// Messages, one JSON object per line.
    #[default]
    Messages,
    /// Elements of the only stream, in the file's `format`.
    Elements,
}

impl Settings {
    /// The streams that a processor reads.
    pub(super) fn inputs(&self) -> Option<Inputs> {
        let inputs = Inputs {
            streams: self.inputs.clone(),
            start: self.start,
        };
        (!inputs.streams.is_empty()).then_some(inputs)
    }
}

/// Reads and checks the keys.
pub(super) fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
    if let Some((key, text)) = settings.program.fault() {
        return wrong(key, text);
    }
    if let Some(inputs) = settings.inputs() {
        check_inputs(file, &settings, &inputs)?;
    }
    match settings.output {
        Output::Elements => {
            Decoder::new(file, &[])?;
            if settings.marks {
                return wrong("marks", "only a program that prints messages has marks");
            }
        }
        Output::Messages if file.fixed_streams().len() < file.keys.streams.len() => {
            return wrong(
                "stream",
                "a program names its streams itself, without placeholders",
            );
        }
        Output::Messages if file.keys.format.is_some() => {
            return wrong("format", "only output = \"elements\" has a format");
        }
        Output::Messages => {}
    }
    Ok(settings)
}

/// Checks the keys of a processor.
fn check_inputs(
    file: &WrapperFile,
    settings: &Settings,
    inputs: &Inputs,
) -> Result<(), DescriptorError> {
    let wrong = |key: &str, text: String, hint: &str| {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        Err(file.fault(key, text, hint))
    };
    if let Some(text) = inputs.fault() {
        let hint = "write a name, or a prefix and `*`: \"plant.*\"";
        return wrong("inputs", text, hint);
    }
    if settings.output == Output::Elements {
        let text = "a program with inputs prints messages".to_owned();
        return wrong("output", text, "");
    }
    if settings.marks {
        let text = "a program with inputs answers `stored` and prints no marks".to_owned();
        return wrong("marks", text, "");
    }
    let outputs = file.fixed_streams();
    match outputs.iter().find(|(name, _)| inputs.selects(name)) {
        Some((name, _)) => wrong("inputs", reads_itself(name), OTHER_NAME),
        None => Ok(()),
    }
}

/// How to repair a processor that reads what it writes.
pub(super) const OTHER_NAME: &str = "name the output so that `inputs` does not select it";

/// Why a processor is refused that writes this stream.
pub(super) fn reads_itself(output: &str) -> String {
    format!("it selects {output:?}, which the program itself writes")
}

/// What a program receives when it starts; nothing if it prints no messages.
pub(super) fn first_line(file: &WrapperFile, settings: &Settings, mark: Option<&Mark>) -> Vec<u8> {
    if settings.output == Output::Elements {
        return Vec::new();
    }
    let streams = file.fixed_streams().into_iter().map(|(name, _)| name);
    let streams: Vec<String> = streams.collect();
    let mark = mark.map(mark_value);
    let mut start = json!({
        "role": "wrapper",
        "name": file.name,
        "settings": settings.program.settings,
        "streams": streams,
    });
    match settings.inputs() {
        None => start["mark"] = json!(mark),
        Some(inputs) => {
            start["role"] = json!("processor");
            start["inputs"] = json!(inputs.streams);
            start["state"] = json!(mark);
        }
    }
    line(&json!({ "start": start }))
}
