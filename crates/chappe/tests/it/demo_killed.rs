//! Goal: a killed demonstration leaves no device process, and its directory is private to its user.
//! Method: the program itself, on loopback. The devices inherit its standard error, which ends with the
//! last of them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// For an unoptimized program on a busy machine; a device ends within 100 ms.
const END_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn devices_end_with_the_demonstration() {
    let temporary = tempfile::tempdir().expect("a scratch folder");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(["demo", "--listen", "127.0.0.1:0", "--json"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut devices = Vec::new();
    // Keep the pipe open: a closed output could end the program too.
    let mut stdout = BufReader::new(demo.stdout.take().expect("standard output"));
    for line in stdout.by_ref().lines() {
        let line = line.expect("a line");
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        match event["event"].as_str() {
            Some("device") => devices.push(event["pid"].as_i64().expect("a number")),
            Some("ready") => {
                let folder = event["folder"].as_str().expect("a path");
                let mode = std::fs::metadata(folder).expect("a folder").permissions();
                assert_eq!(mode.mode() & 0o777, 0o700, "{folder}");
                break;
            }
            _ => {}
        }
    }
    let mut stderr = demo.stderr.take().expect("standard error");
    let (send, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = stderr.read_to_end(&mut Vec::new());
        let _ = send.send(());
    });
    demo.kill().expect("it is killed");
    demo.wait().expect("it has ended");
    let ended = ended.recv_timeout(END_WITHIN);
    if ended.is_err() {
        for device in &devices {
            let pid = Pid::from_raw(i32::try_from(*device).expect("a process"));
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
    assert!(devices.len() > 1, "{devices:?}");
    assert!(ended.is_ok(), "devices {devices:?} go on");
}
