//! The files of virtual sensors: read, checked, written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chappe_stream::{Descriptor, DescriptorError, check_name};
use chappe_wrappers::{ExporterFile, WrapperFile};

use chappe_device::mapping::rules::Rules;

use super::columns::{NotChecked, Stated};
use super::inline;
use crate::config::{Config, ConfigError, Problem, Read};
use crate::reload::{self, FileError, Scan, TEST_ENDING, problem, problem_of, read, scan};

/// The endings of the names of files: Chappe's own descriptors, and GSN's.
pub(super) const EXTENSIONS: &[&str] = &["toml", "xml"];

/// The result of checking a configuration with all its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The names of the virtual sensors.
    pub sensors: Vec<String>,
    /// The names of the wrappers.
    pub wrappers: Vec<String>,
    /// The names of the exporters.
    pub exporters: Vec<String>,
    /// The sources whose columns cannot be checked without a running node.
    pub not_checked: Vec<NotChecked>,
}

/// Checks the items that a configuration refers to: the files of sensors, wrappers and exporters, path
/// rules, and addresses of this host.
///
/// # Errors
/// All faults, with file, line, key and hint.
pub fn check(config: &Config) -> Result<Checked, ConfigError> {
    let mut problems = Vec::new();
    let mut names: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut descriptors: Vec<(String, String, Descriptor)> = Vec::new();
    let mut stated = Stated::default();
    for path in files(&config.sensors_directory, EXTENSIONS, &mut problems) {
        match read(&path) {
            Err(text) => problems.push(problem_of(&path, text)),
            Ok(text) => match descriptor(&path.display().to_string(), &text, config.access.read) {
                Err(error) => problems.push(*error),
                Ok(descriptor) => {
                    stated.add_sensor(&descriptor, &path, &text);
                    if let Some(other) = names.insert(descriptor.name.clone(), path.clone()) {
                        let message = format!(
                            "the name {:?} is already used by {}",
                            descriptor.name,
                            other.display()
                        );
                        problems.push(problem_of(&path, message));
                    }
                    descriptors.push((path.display().to_string(), text, descriptor));
                }
            },
        }
    }
    let wrappers = peers(&config.wrappers_directory, &mut problems, |path, text| {
        let file = WrapperFile::parse(path, text)?;
        stated.add_wrapper(&file);
        file.kind().map(drop)
    });
    let mut not_checked = Vec::new();
    for (file, text, descriptor) in &descriptors {
        match stated.check(descriptor, file, text) {
            Ok(unknown) => not_checked.extend(unknown),
            Err(error) => problems.push(*error),
        }
    }
    let exporters = peers(&config.exporters_directory, &mut problems, |path, text| {
        ExporterFile::parse(path, text)?.kind().map(drop)
    });
    let (_, wrong) = Rules::read(&config.rules_directory);
    problems.extend(wrong.into_iter().map(|error| Problem {
        location: error.file,
        line: Some(error.line).filter(|line| *line > 0),
        key: None,
        message: error.message,
        hint: error.hint,
    }));
    #[cfg(feature = "dds")]
    if let Err(error) = config.dds.check_host() {
        problems.push(Problem {
            location: "configuration".to_owned(),
            line: None,
            key: Some("dds.interfaces".to_owned()),
            message: error.to_string(),
            hint: error.hint().map(str::to_owned),
        });
    }
    if problems.is_empty() {
        let sensors = names.into_keys().collect();
        return Ok(Checked {
            sensors,
            wrappers,
            exporters,
            not_checked,
        });
    }
    Err(ConfigError { problems })
}

/// Reads the descriptor in a file: GSN's, if its name ends in `.xml`, else a TOML.
pub(super) fn descriptor(
    file: &str,
    text: &str,
    reading: Read,
) -> Result<Descriptor, Box<Problem>> {
    let descriptor = match is_xml(Path::new(file)) {
        true => chappe_gsn::descriptor::import(file, text).map(|imported| imported.descriptor),
        false => Descriptor::parse(file, text),
    };
    let descriptor = descriptor.map_err(|error| Box::new(problem(error)))?;
    inline::read(&descriptor, Path::new(file), text).map_err(|error| {
        let mut fault = problem(error);
        // The places of an XML file are not those of the keys that were made of it.
        fault.line = fault.line.filter(|_| !is_xml(Path::new(file)));
        Box::new(fault)
    })?;
    if descriptor.is_protected && reading == Read::Open {
        return Err(Box::new(Problem {
            location: file.to_owned(),
            line: None,
            key: Some("protected".to_owned()),
            message: "the sensor is protected, but everyone may read this node".to_owned(),
            hint: Some(
                "add `read = \"token\"` under [access] in node.toml, or remove `protected`"
                    .to_owned(),
            ),
        }));
    }
    Ok(descriptor)
}

pub(super) fn is_xml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "xml")
}

/// The files of a directory.
fn files(
    directory: &Path,
    extensions: &[&str],
    problems: &mut Vec<Problem>,
) -> impl Iterator<Item = PathBuf> + use<> {
    let scanned = scan(directory, extensions).unwrap_or_else(|error| Scan {
        fault: Some(error.to_string()),
        ..Scan::default()
    });
    let fault = scanned.fault.map(|fault| problem_of(directory, fault));
    problems.extend(fault);
    scanned.found.into_keys()
}

/// Checks the files of a directory; returns the names of the valid ones.
fn peers(
    directory: &Path,
    problems: &mut Vec<Problem>,
    mut check: impl FnMut(&Path, &str) -> Result<(), DescriptorError>,
) -> Vec<String> {
    let mut names = Vec::new();
    for path in files(directory, &["toml"], problems) {
        let text = match read(&path) {
            Ok(text) => text,
            Err(text) => {
                problems.push(problem_of(&path, text));
                continue;
            }
        };
        match check(&path, &text) {
            Ok(()) => {
                let stem = path.file_stem().unwrap_or_default();
                names.push(stem.to_string_lossy().into_owned());
            }
            Err(error) => problems.push(problem(error)),
        }
    }
    names
}

/// Writes the file of the sensor `name` atomically.
pub(super) fn write(
    directory: &Path,
    reading: Read,
    path: Option<PathBuf>,
    name: &str,
    text: &str,
) -> Result<(), FileError> {
    let wrong = |message: String, hint: Option<&str>| {
        FileError::Invalid(Box::new(Problem {
            location: format!("{name}.toml"),
            line: None,
            key: Some("name".to_owned()),
            message,
            hint: hint.map(str::to_owned),
        }))
    };
    check_name(name).map_err(|error| wrong(error.to_string(), None))?;
    if let Some(xml) = path.as_ref().filter(|path| is_xml(path)) {
        let message = format!("the sensor is described by {}", xml.display());
        let hint = "change that file, or remove it after `chappe sensor convert`";
        return Err(wrong(message, Some(hint)));
    }
    let descriptor =
        descriptor(&format!("{name}.toml"), text, reading).map_err(FileError::Invalid)?;
    if descriptor.name != name {
        let message = format!("the file defines {:?}, not {name:?}", descriptor.name);
        return Err(wrong(
            message,
            Some("use the same name in the path and in the file"),
        ));
    }
    let path = path.unwrap_or_else(|| directory.join(format!("{name}.toml")));
    if path.to_string_lossy().ends_with(TEST_ENDING) {
        let message = format!("the file of {name:?} would be one of expectations");
        return Err(wrong(
            message,
            Some("choose a name that does not end in `.test`"),
        ));
    }
    check_sent(&descriptor, &path, text).map_err(FileError::Invalid)?;
    reload::write(directory, &path, name, text)
}

/// Checks the wrappers of a file that was sent over the network.
pub(super) fn check_sent(
    descriptor: &Descriptor,
    path: &Path,
    text: &str,
) -> Result<(), Box<Problem>> {
    let refused = |error| Box::new(problem(error));
    for wrapper in inline::read(descriptor, path, text).map_err(refused)? {
        wrapper.check_sent(&wrapper.keys.kind).map_err(refused)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_written_only_when_valid_and_under_its_own_name() {
        let directory = tempfile::tempdir().unwrap();
        let sensors = directory.path().join("sensors");
        let text = "name = \"a.b\"\n[[source]]\nalias = \"x\"\nstream = \"s\"\n\
            [output]\nsql = \"select 1 as y\"\n[[output.field]]\nname = \"y\"\ntype = \"integer\"\n";
        assert!(write(&sensors, Read::Open, None, "a.b", text).is_ok());
        assert_eq!(scan(&sensors, EXTENSIONS).unwrap().found.len(), 1);
        for (name, text) in [
            ("a.c", text),
            ("../a", text),
            ("a.b", "name = 3"),
            ("a.b", ""),
        ] {
            let refused = write(&sensors, Read::Open, None, name, text);
            assert!(matches!(refused, Err(FileError::Invalid(_))), "{name}");
        }
        let path = sensors.join("a.b.toml");
        assert_eq!(read(&path).unwrap(), text);
        // Expectations are no sensor.
        fs::write(sensors.join("a.b.test.toml"), "x = 1").unwrap();
        let named = text.replace("a.b", "a.test");
        assert!(write(&sensors, Read::Open, None, "a.test", &named).is_err());
        let config = Config {
            sensors_directory: sensors.clone(),
            ..Config::default()
        };
        let checked = check(&config).unwrap();
        assert_eq!(checked.sensors, ["a.b"]);
        let reason = "no file states the fields of \"s\"";
        assert_eq!(checked.not_checked[0].reason, reason);
        fs::write(sensors.join("twin.toml"), text).unwrap();
        fs::write(sensors.join("wrong.toml"), "name = \"w\"\ncolour = 1").unwrap();
        let error = check(&config).unwrap_err();
        assert_eq!(error.problems.len(), 2, "{error}");
        assert_eq!(error.problems[1].line, Some(2));
    }

    #[test]
    fn a_column_that_no_file_states_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("sensors")).unwrap();
        fs::create_dir_all(at("wrappers")).unwrap();
        let sensor = |name: &str, stream: &str, column: &str| {
            format!(
                "name = \"{name}\"\n[[source]]\nalias = \"t\"\nstream = \"{stream}\"\n[output]\n\
                 sql = \"select {column} as mean from t\"\n[[output.field]]\nname = \"mean\"\n\
                 type = \"double\"\n"
            )
        };
        let wrapper = "kind = \"file\"\npath = \"a.csv\"\nformat = \"csv\"\n[[stream]]\nname = \"climate\"\n\
            fields = [{ name = \"celsius\", type = \"double\" }]\n";
        fs::write(at("wrappers/climate.toml"), wrapper).unwrap();
        fs::write(at("sensors/a.toml"), sensor("a", "climate", "celsius")).unwrap();
        fs::write(at("sensors/b.toml"), sensor("b", "a", "mean")).unwrap();
        fs::write(at("sensors/c.toml"), sensor("c", "device.x", "v")).unwrap();
        let config = Config {
            sensors_directory: at("sensors"),
            wrappers_directory: at("wrappers"),
            ..Config::default()
        };
        let checked = check(&config).unwrap();
        let sources: Vec<&str> = checked.not_checked.iter().map(|it| &*it.sensor).collect();
        assert_eq!(sources, ["c"]);
        fs::write(at("sensors/a.toml"), sensor("a", "climate", "celcius")).unwrap();
        fs::write(at("sensors/b.toml"), sensor("b", "a", "men")).unwrap();
        let error = check(&config).unwrap_err();
        let found = error.problems.iter();
        let found: Vec<_> = found
            .map(|it| (it.line, it.message.as_str(), it.hint.as_deref()))
            .collect();
        let expected = [
            (
                Some(6),
                "no such column: celcius",
                Some("did you mean `celsius`?"),
            ),
            (Some(6), "no such column: men", Some("did you mean `mean`?")),
        ];
        assert_eq!(found, expected);
    }
}
