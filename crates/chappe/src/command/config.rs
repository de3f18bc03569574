//! `chappe config`: checks, shows, describes and migrates configuration.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use chappe_node::config::{self, Flag, Layers, Loaded, Origin};
use chappe_terminal::counted;
use chappe_transport::key_file;
use serde_json::json;

use super::text_file;
use crate::cli::{Config, SchemaOf};
use crate::output::{self, Failure, NewFile, Outcome, Table};

/// The name of a node's configuration.
pub(super) const FILE: &str = "node.toml";
/// Largest configuration in bytes; reason: sixteen thousand links of two hundred bytes.
const CONFIGURATION_BYTES_MAX: u64 = 4 << 20;

/// Runs a verb of `config`.
pub(crate) fn run(verb: Config, json: bool) -> Outcome {
    match verb {
        Config::Check { file } => check(&file, json),
        Config::Show { file } => show(file.as_deref(), json),
        Config::Schema { of } => schema(of),
        Config::Sample => {
            output::line(config::sample().trim_end());
            Ok(())
        }
        Config::Migrate { file, dry_run } => migrate(&file, dry_run, json),
    }
}

/// Loads the layers of the configuration: defaults, file, environment, flags.
pub(crate) fn load(file: Option<&Path>, flags: Vec<Flag>) -> Result<Loaded, Failure> {
    let file = match file {
        Some(path) => Some((path.to_owned(), read(path)?)),
        None => None,
    };
    let environment = std::env::vars()
        .filter(|(name, _)| name.starts_with("CHAPPE_"))
        .collect();
    let loaded = config::load(&Layers {
        file,
        environment,
        flags,
    })
    .map_err(failure)?;
    check_mode(&loaded)?;
    Ok(loaded)
}

fn read(path: &Path) -> Result<String, Failure> {
    text_file::read(path, CONFIGURATION_BYTES_MAX).map_err(|failure| match &*failure.error_code {
        "file_unreadable" if path.is_dir() => {
            let file = path.join(FILE);
            failure.hint(format!("name the file: {}", file.display()))
        }
        "file_unreadable" => failure.hint("write one with: chappe config sample > node.toml"),
        _ => failure,
    })
}

/// Refuses a file with a link's token if other users can read it.
fn check_mode(loaded: &Loaded) -> Outcome {
    let with_token = loaded.config.links.iter().find(|link| link.token.is_some());
    let setting = loaded.settings.iter().find(|it| it.key == "links");
    let (Some(link), Some(Origin::File(path, _))) = (with_token, setting.map(|it| &it.origin))
    else {
        return Ok(());
    };
    key_file::open_private(path).map(drop).map_err(|error| {
        Failure::from(error).hint(format!(
            "it contains the token of link {0:?}: chmod 600 {1}, or move the token to a separate file \
             and set in {1}: token_file = \"FILE\"",
            link.name,
            path.display()
        ))
    })
}

/// All problems, one line each, with their hints. A hint that several share follows the last of them.
pub(crate) fn failure(error: config::ConfigError) -> Failure {
    let mut problems = error.problems;
    for index in 1..problems.len() {
        if problems[index - 1].hint == problems[index].hint {
            problems[index - 1].hint = None;
        }
    }
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Failure::new(problems.join("\nerror: ")).coded("configuration_invalid")
}

fn check(file: &Path, json: bool) -> Outcome {
    let loaded = load(Some(file), Vec::new())?;
    let checked = chappe_node::check(&loaded.config).map_err(failure)?;
    let limit = chappe_node::SizeLimit::of(&loaded.config)?;
    let warnings: Vec<String> = loaded.warnings().iter().map(ToString::to_string).collect();
    for warning in &warnings {
        output::note(format_args!("warning: {warning}"));
    }
    if json {
        output::json(&json!({
            "valid": true,
            "file": file,
            "virtual_sensors": checked.sensors,
            "wrappers": checked.wrappers,
            "exporters": checked.exporters,
            "log_max_bytes": limit.bytes,
            "not_checked": checked.not_checked,
            "warnings": warnings,
        }));
    } else {
        output::line(format_args!(
            "{} is valid, with {}, {} and {}",
            file.display(),
            counted(checked.sensors.len(), "virtual sensor"),
            counted(checked.wrappers.len(), "wrapper"),
            counted(checked.exporters.len(), "exporter")
        ));
        for one in &checked.not_checked {
            let (sensor, source, reason) = (&one.sensor, &one.source, &one.reason);
            output::line(format_args!(
                "not checked: the columns of {source} in sensor {sensor}: {reason}"
            ));
        }
        output::note(limit);
    }
    Ok(())
}

fn show(file: Option<&Path>, json: bool) -> Outcome {
    let loaded = load(file, Vec::new())?;
    if json {
        let setting = |setting: &config::Setting| {
            json!({
                "key": setting.key,
                "value": setting.literal(),
                "origin": setting.origin.to_string(),
            })
        };
        output::json(&loaded.settings.iter().map(setting).collect::<Vec<_>>());
        return Ok(());
    }
    let mut table = Table::new(["KEY", "VALUE", "FROM"]);
    for setting in &loaded.settings {
        table.row([
            setting.key.clone(),
            setting.literal(),
            setting.origin.to_string(),
        ]);
    }
    output::line(table);
    Ok(())
}

/// Brings a file to the current form. Nothing is written over; an interrupted migration is continued.
fn migrate(file: &Path, dry_run: bool, json: bool) -> Outcome {
    let before = read(file)?;
    let migration = config::migrate(file, &before).map_err(failure)?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let former = PathBuf::from(format!("{}.former", file.display()));
    let mut files: Vec<(PathBuf, &str)> = Vec::new();
    for (path, text) in &migration.files {
        files.push((directory.join(path), text));
    }
    let is_current = migration.changes.is_empty();
    let writable = |failure: Failure| {
        failure.hint(format!(
            "see the changes without writing them: chappe config migrate {} --dry-run",
            file.display()
        ))
    };
    if !is_current && !dry_run {
        let made = files.iter().map(|(path, text)| (path, *text));
        let mut made = made.chain([(&former, &*before)]);
        // What an interrupted migration has written is the same.
        let is_other = |path: &Path, text: &str| {
            path.exists() && !fs::read(path).is_ok_and(|it| it == text.as_bytes())
        };
        if let Some((taken, _)) = made.find(|(path, text)| is_other(path, text)) {
            return Err(Failure::new(format!("{} already exists", taken.display()))
                .coded("file_exists")
                .hint("move it away; nothing was overwritten"));
        }
        for (path, text) in &files {
            if let Some(directory) = path.parent() {
                output::folder(directory).map_err(writable)?;
            }
            output::file(path, text).map_err(writable)?;
        }
        keep(file, &before, &former).map_err(writable)?;
        output::file(file, &migration.text).map_err(writable)?;
    }
    if json {
        let files: Vec<&PathBuf> = files.iter().map(|(path, _)| path).collect();
        output::json(&json!({
            "file": file,
            "is_current": is_current,
            "is_written": !is_current && !dry_run,
            "changes": migration.changes,
            "files": files,
        }));
        return Ok(());
    }
    for change in &migration.changes {
        output::line(change);
    }
    match (is_current, dry_run) {
        (true, _) => output::line(format_args!("{} has the current form", file.display())),
        (false, true) => output::note("nothing was written"),
        (false, false) => output::note(format_args!(
            "the former file is {} (next: chappe config check {})",
            former.display(),
            file.display()
        )),
    }
    Ok(())
}

/// Keeps the text of a file under another name, with its mode: it may hold a token.
fn keep(file: &Path, text: &str, former: &Path) -> Outcome {
    let mut new = NewFile::begin(former)?;
    let written = fs::metadata(file)
        .and_then(|metadata| new.file().set_permissions(metadata.permissions()))
        .and_then(|()| new.write_all(text.as_bytes()));
    written.map_err(|error| output::refused("write", former, &error))?;
    new.replace().map(drop)
}

fn schema(of: SchemaOf) -> Outcome {
    let schema = match of {
        SchemaOf::Node => config::schema(),
        SchemaOf::Sensor => config::sensor_schema(),
        SchemaOf::Wrapper => config::wrapper_schema(),
        SchemaOf::Exporter => config::exporter_schema(),
    };
    output::line(serde_json::to_string_pretty(&schema)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_faults_share_is_printed_once() {
        let of = |text: &str| {
            let file = Some((PathBuf::from("a.toml"), text.to_owned()));
            let layers = Layers {
                file,
                environment: Vec::new(),
                flags: Vec::new(),
            };
            failure(config::load(&layers).unwrap_err()).message
        };
        let message = of("xyzzy = 1\nabcde = 2\nnmae = \"a\"\n");
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].starts_with("a.toml:1: xyzzy"), "{message}");
        assert!(lines[1].starts_with("error: a.toml:2: abcde"), "{message}");
        assert!(lines[2].starts_with("hint: valid keys: "), "{message}");
        assert_eq!(lines[4], "hint: did you mean `name`?", "{message}");
    }

    #[test]
    fn a_directory_is_answered_with_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let failure = read(directory.path()).unwrap_err();
        assert!(failure.hint.unwrap().ends_with("/node.toml"));
    }
}
