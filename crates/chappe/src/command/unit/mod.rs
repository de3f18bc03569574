//! `chappe service`: a node as a service of systemd.
//!
//! The unit is that of the packages (`chappe.service`), with the program, the configuration and the user of this
//! machine. Root makes a service of the system; anybody else one of their own, which systemd's manager of that user
//! runs without the protection that only the system's has.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use chappe_node::config::Origin;
use nix::unistd::{Group, Uid, User};
use serde_json::json;

use super::up::configuration;
use crate::cli::{Service, ServiceInstall};
use crate::output::{self, Failure, Outcome};

/// The unit of the packages.
const UNIT: &str = include_str!("chappe.service");
/// Its name.
const NAME: &str = "chappe.service";
/// The directory whose presence says that systemd runs (`sd_booted(3)`).
const SYSTEMD: &str = "/run/systemd/system";
/// Where packages put units.
const PACKAGED_UNITS: &str = "/usr/lib/systemd/system";
/// Where root puts units.
const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// Keys of the unit that the manager of a user has a use and the right for.
const USER_KEYS: &[&str] = &[
    "Description",
    "Documentation",
    "StartLimitIntervalSec",
    "StartLimitBurst",
    "Type",
    "ExecReload",
    "Restart",
    "RestartSec",
    "RestartPreventExitStatus",
    "WatchdogSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "UMask",
];
/// Where a service has its data whose configuration belongs to root.
const STATE_DIRECTORY: &str = "Environment=CHAPPE_DATA_DIRECTORY=/var/lib/chappe";
/// Directories of files that the node writes on request, with their names below the data of such a service.
const WRITTEN: [(&str, &str); 3] = [
    ("sensors_directory", "sensors"),
    ("wrappers_directory", "wrappers"),
    ("exporters_directory", "exporters"),
];
/// Permission of others to read a file.
const OTHERS_READ: u32 = 0o004;

/// Runs a verb of `service`.
pub(crate) fn run(verb: Service, json: bool) -> Outcome {
    match verb {
        Service::Install(flags) => install(&flags, json),
        Service::Uninstall => uninstall(json),
        Service::Status => status(json),
    }
}

/// Whose manager of services is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    /// The system's, by root.
    System,
    /// That of this user.
    User,
}

impl Scope {
    fn of_caller() -> Self {
        match Uid::effective().is_root() {
            true => Self::System,
            false => Self::User,
        }
    }

    /// The unit's file.
    fn unit(&self) -> Result<PathBuf, Failure> {
        let directory = match self {
            Self::System => PathBuf::from(SYSTEM_UNITS),
            Self::User => {
                let of = |name: &str| std::env::var_os(name).map(PathBuf::from);
                let config = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
                let config = config.ok_or_else(|| {
                    Failure::new("this user has no home directory")
                        .coded("file_not_found")
                        .hint("set HOME, or install the service as root")
                })?;
                config.join("systemd/user")
            }
        };
        Ok(directory.join(NAME))
    }

    /// Runs systemctl.
    fn systemctl(&self, arguments: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("systemctl");
        if *self == Self::User {
            command.arg("--user");
        }
        let shown = arguments.join(" ");
        let done = command.args(arguments).output().map_err(|error| {
            Failure::new(format!("cannot run systemctl {shown}: {error}"))
                .coded("service_manager_failed")
                .hint("run the node in the foreground: chappe up")
        })?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
        }
        let reason = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        let log = match self {
            Self::System => "journalctl -u chappe -n 20",
            Self::User => "journalctl --user -u chappe -n 20",
        };
        Err(Failure::new(format!("systemctl {shown}: {reason}"))
            .coded("service_manager_failed")
            .hint(format!("see why: {log}")))
    }
}

/// Refuses on a machine without systemd; `instead` is a command that works there.
fn need_systemd(instead: &str) -> Outcome {
    if Path::new(SYSTEMD).is_dir() {
        return Ok(());
    }
    Err(
        Failure::new(format!("systemd does not run here: there is no {SYSTEMD}"))
            .coded("service_manager_failed")
            .hint(instead),
    )
}

fn install(flags: &ServiceInstall, json: bool) -> Outcome {
    let file = configuration(&flags.at)?;
    let file = std::path::absolute(&file)?;
    let program = std::env::current_exe()?;
    let scope = Scope::of_caller();
    let text = unit(&scope, &program, &file)?;
    if flags.print {
        output::line(text.trim_end());
        return Ok(());
    }
    need_systemd(&format!(
        "run the node in the foreground, or have the service manager of this machine run: {} serve {}",
        program.display(),
        file.display()
    ))?;
    // A wrong configuration is refused here, with its line, rather than in the journal.
    let config = super::config::load(Some(&file), Vec::new())?.config;
    let path = scope.unit()?;
    if !flags.force {
        refuse_other_service(&scope, &path, &text)?;
    }
    if text.contains(STATE_DIRECTORY) && config.data_directory.join("key.pem").exists() {
        let data = config.data_directory.display();
        let failure = Failure::new(format!(
            "{} belongs to root, whose service has its data in /var/lib/chappe, and {data} holds data",
            file.display()
        ));
        return Err(failure.coded("data_unusable").hint(format!(
            "give both to the user that runs the node: chown -R USER {} {data}",
            file.display()
        )));
    }
    let writable = |failure: Failure| {
        failure.hint(format!(
            "print the unit, and put it where your system reads units: chappe service install {} --print",
            flags.at.display()
        ))
    };
    if let Some(directory) = path.parent() {
        output::folder(directory).map_err(writable)?;
    }
    output::file(&path, &text).map_err(writable)?;
    scope.systemctl(&["daemon-reload"])?;
    scope.systemctl(&["enable", NAME])?;
    scope.systemctl(&["restart", NAME])?;
    if json {
        output::json(&json!({ "unit": path, "configuration": file, "program": program }));
    } else {
        output::line(format_args!("{} runs {}", path.display(), file.display()));
    }
    for (key, place) in text.lines().filter_map(moved) {
        output::note(format_args!(
            "{key} is {place}, which the service can write"
        ));
    }
    if scope == Scope::User {
        output::note("it ends with your last session; to run it always: loginctl enable-linger");
    }
    output::progress("next: chappe service status");
    Ok(())
}

/// The key and the value of a line that sets a directory of the service.
fn moved(line: &str) -> Option<(String, &str)> {
    let (name, place) = line.strip_prefix("Environment=CHAPPE_")?.split_once('=')?;
    Some((name.to_lowercase(), place))
}

/// Refuses to take the service of another configuration: its node would stop.
fn refuse_other_service(scope: &Scope, path: &Path, text: &str) -> Outcome {
    let start = |unit: &str| {
        let mut lines = unit.lines();
        lines.find_map(|line| Some(line.strip_prefix("ExecStart=")?.to_owned()))
    };
    let packaged = Path::new(PACKAGED_UNITS).join(NAME);
    let places = [path, &packaged];
    let places = match scope {
        Scope::System => &places[..],
        Scope::User => &places[..1],
    };
    let known = places
        .iter()
        .find_map(|place| std::fs::read_to_string(place).ok());
    match known.as_deref().and_then(start) {
        // Another program with the same configuration is an upgrade.
        Some(other) if !is_same_node(&other, &start(text).unwrap_or_default()) => {
            let failure = Failure::new(format!("there is a service already, which runs {other}"));
            Err(failure.coded("file_exists").hint(
                "remove it (chappe service uninstall, or the package), or replace it: add --force",
            ))
        }
        _ => Ok(()),
    }
}

/// Whether two starts differ in no more than the program.
fn is_same_node(one: &str, other: &str) -> bool {
    let configuration = |start: &str| {
        let (_, rest) = start.split_once(" serve ")?;
        Some(rest.trim_matches('"').to_owned())
    };
    configuration(one) == configuration(other)
}

/// The unit for a program, a configuration and its owner.
fn unit(scope: &Scope, program: &Path, file: &Path) -> Result<String, Failure> {
    let start = format!("ExecStart={} serve {}", quoted(program)?, quoted(file)?);
    let text = match scope {
        Scope::System => of_system(&start, file)?,
        Scope::User => of_user(&start),
    };
    Ok(text)
}

/// The unit of the packages with another start and user.
fn of_system(start: &str, file: &Path) -> Result<String, Failure> {
    let user = user(file)?;
    let mut lines = Vec::new();
    for line in UNIT.lines() {
        match line.split_once('=') {
            Some(("ExecStart", _)) => lines.push(start),
            Some(("User", _)) => lines.extend(user.iter().map(String::as_str)),
            Some(("Group" | "StateDirectory" | "StateDirectoryMode", _)) => {}
            Some(("WorkingDirectory" | "ProtectHome", _)) => {}
            Some(("SupplementaryGroups", group)) if !is_group(group) => {}
            _ => lines.push(line),
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The lines with the user of a service of the system, and what that user may write.
fn user(file: &Path) -> Result<Vec<String>, Failure> {
    let metadata = std::fs::metadata(file)?;
    let directory = quoted(file.parent().unwrap_or(Path::new("/")))?;
    let uid = metadata.uid();
    if uid != 0 {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.map_or_else(|| uid.to_string(), |user| user.name);
        // The data directory is below that of the configuration, unless that says otherwise.
        let lines = [
            format!("User={name}"),
            format!("ReadWritePaths={directory}"),
        ];
        return Ok(lines.into());
    }
    if metadata.mode() & OTHERS_READ == 0 || file.starts_with("/root") {
        let failure = Failure::new(format!(
            "{} belongs to root and no other user can read it; the node does not run as root",
            file.display()
        ))
        .coded("permission_denied");
        return Err(failure.hint(format!(
            "give it to the user that runs the node: chown -R USER {directory}"
        )));
    }
    // The directory for the data belongs to a user that exists while the service does.
    let lines = [
        "DynamicUser=yes",
        "StateDirectory=chappe",
        "StateDirectoryMode=0700",
        STATE_DIRECTORY,
    ];
    let lines = lines.map(str::to_owned).into_iter();
    Ok(lines.chain(written_directories(file)?).collect())
}

/// The lines by which a service whose configuration belongs to root writes sensors, wrappers and exporters next to its
/// data. A directory that the configuration names, or that has files, stays: the node reads it and cannot change it.
fn written_directories(file: &Path) -> Result<Vec<String>, Failure> {
    let loaded = super::config::load(Some(file), Vec::new())?;
    let config = &loaded.config;
    let places = [
        &config.sensors_directory,
        &config.wrappers_directory,
        &config.exporters_directory,
    ];
    let lines = WRITTEN.iter().zip(places).filter(|((key, _), place)| {
        let setting = loaded.settings.iter().find(|setting| setting.key == *key);
        let is_default = setting.is_some_and(|it| matches!(it.origin, Origin::Default));
        let is_empty = std::fs::read_dir(place).map_or(true, |mut files| files.next().is_none());
        is_default && is_empty
    });
    let lines = lines.map(|((key, name), _)| {
        let variable = key.to_uppercase();
        format!("Environment=CHAPPE_{variable}=/var/lib/chappe/{name}")
    });
    Ok(lines.collect())
}

fn is_group(name: &str) -> bool {
    matches!(Group::from_name(name), Ok(Some(_)))
}

/// The unit of the packages with another start, and without what the manager of a user cannot do.
fn of_user(start: &str) -> String {
    let mut lines = Vec::new();
    for line in UNIT.lines() {
        match line.split_once('=') {
            Some(("ExecStart", _)) => lines.push(start),
            Some(("WantedBy", _)) => lines.push("WantedBy=default.target"),
            Some((key, _)) if USER_KEYS.contains(&key) => lines.push(line),
            None if !line.starts_with('#') => lines.push(line),
            _ => {}
        }
    }
    lines.join("\n") + "\n"
}

/// A path as one word of a unit (`systemd.syntax(7)`): `%` doubled, in quotes.
fn quoted(path: &Path) -> Result<String, Failure> {
    let text = path
        .to_str()
        .filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| {
        Failure::new(format!("a unit cannot name {}", path.display()))
            .coded("argument_invalid")
            .hint("rename it")
    })?;
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let escaped = escaped.replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    Ok(match text.chars().all(is_plain) {
        true => escaped,
        false => format!("\"{escaped}\""),
    })
}

fn uninstall(json: bool) -> Outcome {
    need_systemd(
        "end the node where it runs, and remove it from the service manager of this machine",
    )?;
    let scope = Scope::of_caller();
    let path = scope.unit()?;
    if !path.exists() {
        let failure =
            Failure::new(format!("there is no {}", path.display())).coded("file_not_found");
        return Err(failure.hint(match scope {
            Scope::User => {
                "a service of the system is removed by root: sudo chappe service uninstall"
            }
            Scope::System => "a service of a package is removed with the package",
        }));
    }
    scope.systemctl(&["disable", "--now", NAME])?;
    std::fs::remove_file(&path).map_err(|error| {
        Failure::new(format!("cannot remove {}: {error}", path.display())).coded("file_unwritable")
    })?;
    scope.systemctl(&["daemon-reload"])?;
    match json {
        true => output::json(&json!({ "removed": path })),
        false => output::line(format_args!(
            "removed {}; configuration and data are still there",
            path.display()
        )),
    }
    Ok(())
}

fn status(json: bool) -> Outcome {
    need_systemd("ask the node itself: chappe query 'select 1'")?;
    let scope = Scope::of_caller();
    let shown = scope.systemctl(&[
        "show",
        NAME,
        "--property=LoadState,ActiveState,SubState,FragmentPath,MainPID,Result,StatusText",
    ])?;
    let value = |key: &str| {
        let mut lines = shown.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(name, _)| *name == key)
            .map_or("", |(_, value)| value)
    };
    let is_installed = value("LoadState") == "loaded";
    let runs = value("ActiveState") == "active";
    if json {
        output::json(&json!({
            "installed": is_installed, "runs": runs, "state": value("ActiveState"),
            "sub_state": value("SubState"), "unit": value("FragmentPath"),
            "process": value("MainPID").parse::<u32>().ok().filter(|id| *id > 0),
            "result": value("Result"), "status": value("StatusText"),
        }));
    } else if is_installed {
        output::line(format_args!(
            "{} ({}), process {}, {}",
            value("ActiveState"),
            value("SubState"),
            value("MainPID"),
            value("FragmentPath")
        ));
    } else {
        output::line("not installed");
    }
    if runs {
        return Ok(());
    }
    let hint = match (is_installed, &scope) {
        (false, _) => "hint: chappe service install DIR",
        (true, Scope::System) => "hint: see why: journalctl -u chappe -n 20",
        (true, Scope::User) => "hint: see why: journalctl --user -u chappe -n 20",
    };
    output::note(hint);
    Err(Failure::negative())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_names_program_configuration_and_user() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("my node.toml");
        std::fs::write(&file, "").unwrap();
        let owner = std::fs::metadata(&file).unwrap().uid();
        let program = Path::new("/usr/local/bin/chappe");
        let system = unit(&Scope::System, program, &file).ok().unwrap();
        let start = format!(
            "ExecStart=/usr/local/bin/chappe serve \"{}\"",
            file.display()
        );
        assert!(system.contains(&start), "{system}");
        assert!(!system.contains("/etc/chappe"), "{system}");
        let user = match owner {
            0 => "DynamicUser=yes\nStateDirectory=chappe\n",
            _ => "User=",
        };
        assert!(system.contains(user), "{system}");
        assert!(system.contains("\nProtectSystem=strict\n"), "{system}");
        assert_eq!(moved(STATE_DIRECTORY).unwrap().0, "data_directory");
        let set = "Environment=CHAPPE_SENSORS_DIRECTORY=/var/lib/chappe/sensors\n";
        let lines = |file: &Path| written_directories(file).ok().unwrap().join("\n") + "\n";
        assert!(lines(&file).contains(set), "{}", lines(&file));
        if owner == 0 {
            assert!(system.contains(set), "{system}");
        }
        // A directory with files, or one that the configuration names, stays.
        std::fs::create_dir(scratch.path().join("sensors")).unwrap();
        std::fs::write(scratch.path().join("sensors/a.toml"), "").unwrap();
        assert!(!lines(&file).contains(set));
        let named = scratch.path().join("named.toml");
        std::fs::write(&named, "sensors_directory = \"s\"\n").unwrap();
        assert!(!lines(&named).contains(set));
        let own = unit(&Scope::User, program, &file).ok().unwrap();
        assert!(own.contains("WantedBy=default.target"), "{own}");
        assert!(
            !own.contains("ProtectSystem") && !own.contains("User="),
            "{own}"
        );
    }

    #[test]
    fn the_service_of_another_configuration_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, file) = (scratch.path().join(NAME), scratch.path().join("node.toml"));
        std::fs::write(&file, "").unwrap();
        let text =
            |program: &str, file: &Path| unit(&Scope::User, Path::new(program), file).ok().unwrap();
        let own = text("/usr/bin/chappe", &file);
        assert!(refuse_other_service(&Scope::User, &path, &own).is_ok());
        std::fs::write(&path, &own).unwrap();
        let newer = text("/opt/chappe", &file);
        assert!(refuse_other_service(&Scope::User, &path, &newer).is_ok());
        let other = text("/usr/bin/chappe", &scratch.path().join("other.toml"));
        let refused = refuse_other_service(&Scope::User, &path, &other).unwrap_err();
        assert!(refused.message.contains("node.toml"), "{}", refused.message);
    }

    #[test]
    fn paths_are_one_word_of_a_unit() {
        for (path, word) in [
            ("/a/b-1.toml", "/a/b-1.toml"),
            ("/a b", "\"/a b\""),
            ("/50%", "\"/50%%\""),
            ("/$x\"", "\"/$$x\\\"\""),
        ] {
            assert_eq!(quoted(Path::new(path)).ok().unwrap(), word);
        }
        assert!(quoted(Path::new("/a\nExecStart=/bin/sh")).is_err());
    }
}
