//! Goal: every verb has help, errors have the right exit code and name the remedy.
//! Method: the built program, without a network.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::output::{err, out};

fn chappe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(arguments)
        .env_remove("CHAPPE_NODE")
        .output()
        .expect("the program starts")
}

const VERBS: [&str; 13] = [
    "demo", "serve", "device", "find", "doctor", "describe", "call", "watch", "query", "trace",
    "config", "data", "stream",
];

#[test]
fn every_verb_has_help() {
    let help = out(&chappe(&["--help"]));
    for verb in VERBS {
        assert!(help.contains(verb), "{verb} in {help}");
        let output = chappe(&[verb, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{verb}");
        let width = out(&output).lines().map(|line| line.chars().count()).max();
        assert!(width < Some(140), "{verb}: a line of {width:?}");
    }
    for verb in ["demo", "find", "watch", "query", "call", "trace"] {
        assert!(
            out(&chappe(&[verb, "--help"])).contains("Example"),
            "{verb} has examples"
        );
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = chappe(&["completions", shell]);
        assert!(out(&output).contains("doctor"), "{shell}");
        assert!(!out(&output).contains("bench"), "{shell}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error_and_a_full_disk_is_one() {
    let program = |arguments: &[&str], out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command.args(arguments).stdout(out).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    };
    for arguments in [
        &["completions", "zsh"][..],
        &["explain"],
        &["explain", "--json"],
    ] {
        let mut child = program(arguments, Stdio::piped());
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert_eq!(err(&output), "", "{arguments:?}");
        let full = std::fs::File::options().write(true).open("/dev/full");
        let child = program(arguments, full.expect("a device without room").into());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = err(&output);
        assert!(text.contains("cannot write to standard output"), "{text}");
    }
}

#[test]
fn wrong_use_ends_with_2() {
    for arguments in [
        &["frobnicate"][..],
        &["find", "--timeout", "soon"],
        &["serve", "a", "b"],
    ] {
        assert_eq!(chappe(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_file_with_a_token_must_be_private() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("node.toml");
    let link = "[[links]]\nname = \"ward\"\nkind = \"http_pull\"\naddress = \"http://127.0.0.1:9\"\n\
                streams = [\"*\"]\n";
    let checked = |text: &str, mode: u32| {
        std::fs::write(&path, text).expect("the file is written");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("the mode is set");
        chappe(&["config", "check", path.to_str().expect("the path is text")])
    };
    let with_token = format!("{link}token = \"s3cret\"\n");
    for mode in [0o644, 0o640, 0o602] {
        let refused = checked(&with_token, mode);
        let text = err(&refused);
        assert_eq!(refused.status.code(), Some(2), "{mode:o}: {text}");
        assert!(
            text.contains("hint: ") && text.contains("token_file"),
            "{text}"
        );
    }
    assert_eq!(checked(link, 0o644).status.code(), Some(0));
    assert_eq!(checked(&with_token, 0o600).status.code(), Some(0));
    for format in [&["--json"][..], &[]] {
        let path = path.to_str().expect("the path is text");
        let shown = chappe(&[&["config", "show", path], format].concat());
        assert!(!out(&shown).contains("s3cret"), "{}", out(&shown));
        assert!(out(&shown).contains("ward"), "{}", out(&shown));
    }
}

#[test]
fn errors_come_with_a_hint() {
    let cases: [(&[&str], &str); 7] = [
        (
            &["demo", "--listen", "0.0.0.0:0", "--run-for", "1s"],
            "127.0.0.1",
        ),
        (
            &["query", "--node", "http://127.0.0.1:9", "select 1"],
            "chappe up",
        ),
        (
            &["query", "--node", "ftp://x", "select 1"],
            "http://127.0.0.1:8470",
        ),
        (
            &["config", "check", "there-is-no-such.toml"],
            "config sample",
        ),
        (
            &["data", "check", "there-is-no-such-folder"],
            "data directory",
        ),
        (&["find", "--interface", "there-is-no-such"], "interfaces: "),
        (
            &["describe", "http://127.0.0.1:9/", "--interface", "lo"],
            "127.0.0.1:9",
        ),
    ];
    for (arguments, hint) in cases {
        let output = chappe(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            err(&output)
        );
        let text = err(&output);
        let line = text
            .lines()
            .find(|line| line.starts_with("hint: "))
            .unwrap_or_default();
        assert!(line.contains(hint), "{arguments:?}: {text}");
        assert_eq!(out(&output), "", "results alone go to standard output");
    }
}

#[test]
fn impossible_flags_fail_before_any_work() {
    let stdout_and_error = |arguments: &[&str], code: i32, words: &str| {
        let output = chappe(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let text = out(&output) + &err(&output);
        assert!(text.contains(words), "{arguments:?}: {text}");
    };
    let device = ["device", "run", "demo/devices/thermometer.toml"];
    let tree = [&device[..], &["--tree", "/proc/nope"]].concat();
    stdout_and_error(&tree, 2, "cannot create /proc/nope");
    stdout_and_error(&["watch", "--stream", "x", "--tree"], 2, "--tree");
}

#[test]
fn moved_verbs_name_their_new_program() {
    for arguments in [
        &["bench"][..],
        &["bench", "--help"],
        &["bench", "exchange", "--quick", "--json"],
        &["sim", "lookup", "--nodes", "2"],
        &["sim", "--help"],
        &["--json", "sim"],
    ] {
        let output = chappe(arguments);
        let text = err(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        let verb = if arguments.contains(&"sim") {
            "sim"
        } else {
            "bench"
        };
        assert!(text.contains(&format!("`chappe-lab {verb}`")), "{text}");
        let command = format!("cargo run --release -p chappe-lab -- {verb}");
        assert!(text.contains("hint: ") && text.contains(&command), "{text}");
        assert_eq!(out(&output), "", "results alone go to standard output");
    }
    let help = out(&chappe(&["--help"]));
    assert!(!help.contains("bench") && !help.contains("sim "), "{help}");
}

#[test]
fn configuration_is_checked_with_line_key_and_hint() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let check = |text: &str| {
        let path = folder.path().join("node.toml");
        std::fs::write(&path, text).expect("the file is written");
        chappe(&["config", "check", path.to_str().expect("the path is text")])
    };
    let right = check("name = \"ward\"\n");
    assert_eq!(right.status.code(), Some(0), "{}", err(&right));
    let wrong = check("name = \"ward\"\n[http]\nlissen = \"127.0.0.1:1\"\n");
    assert_eq!(wrong.status.code(), Some(2));
    let text = err(&wrong);
    assert!(
        text.contains("node.toml:3") && text.contains("lissen"),
        "{text}"
    );
    assert!(text.contains("hint:") && text.contains("listen"), "{text}");
}

/// Arguments of a node that keeps its files in this folder.
fn serve_in(folder: &Path) -> Vec<String> {
    let set = [
        format!("data_directory={}", folder.join("data").display()),
        format!("sensors_directory={}", folder.join("s").display()),
        "http.listen=127.0.0.1:0".to_owned(),
        "discovery.enabled=false".to_owned(),
    ];
    let set = set
        .into_iter()
        .flat_map(|setting| ["--set".to_owned(), setting]);
    ["serve".to_owned()].into_iter().chain(set).collect()
}

#[test]
fn serve_raises_the_limit_of_open_files() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -Sn 128; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_chappe"))
        .args(serve_in(folder.path()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let stdout = child.stdout.as_mut().expect("its output");
    let mut ready = String::new();
    BufReader::new(stdout)
        .read_line(&mut ready)
        .expect("a line");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id()));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let limits = limits.expect("its limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("the limit of open files");
    let soft: u64 = files
        .split_whitespace()
        .nth(3)
        .and_then(|word| word.parse().ok())
        .expect("a number");
    assert!(soft > 128, "{files}");
}

#[test]
fn serve_never_prints_the_new_token() {
    for format in [&["--json"][..], &[]] {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let data = folder.path().join("data");
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command.args(serve_in(folder.path())).args(format);
        command.current_dir(&folder);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program starts");
        let mut ready = String::new();
        let stdout = child.stdout.as_mut().expect("its output");
        BufReader::new(stdout)
            .read_line(&mut ready)
            .expect("a line");
        child.kill().expect("it runs");
        let errors = err(&child.wait_with_output().expect("it ends"));
        let file = data.join("new-token");
        let token = std::fs::read_to_string(&file).expect("the token");
        let printed = ready + &errors;
        assert!(!printed.contains(token.trim()), "{printed}");
        assert!(printed.contains(&file.display().to_string()), "{printed}");
        let mode = std::fs::metadata(&file).expect("its mode").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }
}

#[cfg(feature = "dds")]
#[test]
fn dds_interfaces_are_addresses_of_this_host() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("node.toml");
    // RFC 5737 reserves the address for documentation.
    let exporters = folder.path().join("exporters");
    std::fs::create_dir(&exporters).expect("the directory is made");
    std::fs::write(&path, "[dds]\ninterfaces = [\"192.0.2.77\"]\n").expect("the file is written");
    for published in ["", "kind = \"dds\"\nstreams = [\"a\"]\ntopic = \"a\"\n"] {
        if !published.is_empty() {
            std::fs::write(exporters.join("a.toml"), published).expect("the file is written");
        }
        let foreign = chappe(&["config", "check", path.to_str().expect("the path is text")]);
        assert_eq!(foreign.status.code(), Some(2), "{}", out(&foreign));
        let text = err(&foreign);
        assert!(text.contains("dds.interfaces: 192.0.2.77 is not"), "{text}");
    }
}

#[test]
fn sample_schema_and_settings_agree() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let sample = chappe(&["config", "sample"]);
    let path = folder.path().join("node.toml");
    std::fs::write(&path, &sample.stdout).expect("the file is written");
    let checked = chappe(&["config", "check", path.to_str().expect("the path is text")]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    for of in ["node", "sensor"] {
        let schema: serde_json::Value =
            serde_json::from_slice(&chappe(&["config", "schema", of]).stdout).expect("JSON");
        assert!(schema["properties"].is_object(), "{of}");
    }
    let shown = chappe(&["config", "show", "--json"]);
    let settings: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let settings = settings.as_array().expect("a list");
    assert!(
        settings
            .iter()
            .any(|setting| setting["key"] == "http.listen")
    );
    assert!(settings.iter().all(|setting| setting["origin"].is_string()));
}

#[test]
fn the_doctor_checks_loopback() {
    let output = chappe(&["doctor", "--interface", "lo", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("a list");
    for name in [
        "interface lo",
        "multicast on lo",
        "port 3702",
        "container",
        "clock",
    ] {
        assert!(
            checks.iter().any(|check| check["name"] == name),
            "{name} in {report}"
        );
    }
    let failed = checks
        .iter()
        .filter(|check| check["state"] == "failed")
        .count();
    assert_eq!(output.status.code(), Some(i32::from(failed > 0)));
}

#[test]
fn errors_of_device_files_name_the_line() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("device.toml");
    std::fs::write(&path, "name = \"x\"\ncolour = \"red\"\n").expect("the file is written");
    let path: &Path = &path;
    let output = chappe(&["device", "run", path.to_str().expect("the path is text")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("device.toml:2"), "{}", err(&output));
}

#[cfg(feature = "dds")]
#[test]
fn a_former_configuration_is_migrated_once() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("node.toml");
    let former = "# Ward 3\n[dds]\nlibrary = \"rustdds\"\n\n[[dds.publish]]\nstream = \"ward.pulse\"\ntopic = \"ward/pulse\"\n";
    std::fs::write(&path, former).expect("the file is written");
    let migrate = |more: &[&str]| {
        let file = path.to_str().expect("the path is text");
        chappe(&[&["config", "migrate", file][..], more].concat())
    };
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
    let tried = migrate(&["--dry-run"]);
    assert_eq!(tried.status.code(), Some(0), "{}", err(&tried));
    assert!(out(&tried).contains("exporters/ward-pulse.toml"));
    assert_eq!(text("node.toml").as_deref(), Some(former));
    let done = migrate(&[]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert_eq!(text("node.toml.former").as_deref(), Some(former));
    let exporter = text("exporters/ward-pulse.toml").expect("the file is made");
    assert!(
        exporter.starts_with("kind = \"dds\"\nstreams = [\"ward.pulse\"]\n"),
        "{exporter}"
    );
    let checked = chappe(&["config", "check", path.to_str().expect("the path is text")]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    assert!(out(&migrate(&[])).contains("current form"));
    // An interrupted migration has written some of its files.
    std::fs::write(&path, former).expect("the file is written");
    let resumed = migrate(&[]);
    assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
    assert_eq!(text("node.toml.former").as_deref(), Some(former));
    // Nothing else is written over.
    std::fs::write(&path, former).expect("the file is written");
    let own = folder.path().join("exporters/ward-pulse.toml");
    std::fs::write(own, "# mine").expect("the file is written");
    let refused = migrate(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        err(&refused).contains("already exists"),
        "{}",
        err(&refused)
    );
    assert_eq!(text("node.toml").as_deref(), Some(former));
}
