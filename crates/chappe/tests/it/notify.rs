//! Goal: a service manager learns when the node is ready, that it is alive, that it rereads its files and that it ends;
//! a wrong configuration ends it with a status of its own.
//! Method: the program itself, with the socket of a service manager (`sd_notify(3)`) that this test plays.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// For an unoptimized program on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);
/// Period of the watchdog in microseconds; reason: short enough to see several notifications.
const WATCHDOG_USEC: &str = "400000";

/// Ends the program with the test.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a process"));
        kill(pid, signal).expect("a signal");
    }
}

/// The messages of a node, one line each.
struct Manager {
    socket: UnixDatagram,
    pending: Vec<String>,
}

impl Manager {
    /// Waits for a line with this prefix; lines before it are dropped.
    fn wait_for(&mut self, prefix: &str) -> String {
        let end = Instant::now() + WITHIN;
        while Instant::now() < end {
            while !self.pending.is_empty() {
                let line = self.pending.remove(0);
                if line.starts_with(prefix) {
                    return line;
                }
            }
            let mut buffer = [0; 4096];
            if let Ok(length) = self.socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                self.pending.extend(text.lines().map(str::to_owned));
            }
        }
        panic!("no {prefix} within {WITHIN:?}");
    }
}

#[test]
fn a_service_manager_follows_the_node() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let path = scratch.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(WITHIN)).expect("a time-out");
    let mut manager = Manager {
        socket,
        pending: Vec::new(),
    };
    let configuration = scratch.path().join("node.toml");
    let valid = "[http]\nlisten = \"127.0.0.1:0\"\n[discovery]\nenabled = false\n";
    std::fs::write(&configuration, valid).expect("a file");
    let serve = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
        command
            .arg("serve")
            .arg(&configuration)
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", WATCHDOG_USEC)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let mut node = Node(serve().spawn().expect("the program starts"));
    manager.wait_for("READY=1");
    let status = manager.wait_for("STATUS=");
    assert!(
        status.starts_with("STATUS=ready at http://127.0.0.1:"),
        "{status}"
    );
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");

    node.signal(Signal::SIGHUP);
    manager.wait_for("RELOADING=1");
    manager.wait_for("MONOTONIC_USEC=");
    manager.wait_for("READY=1");
    manager.wait_for("STATUS=ready at");

    std::fs::write(&configuration, "[http]\nlistn = \"127.0.0.1:0\"\n").expect("a file");
    node.signal(Signal::SIGHUP);
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    manager.wait_for("STATUS=the changed configuration is wrong");
    // The node runs on.
    manager.wait_for("WATCHDOG=1");

    node.signal(Signal::SIGTERM);
    manager.wait_for("STOPPING=1");
    let status = node.0.wait().expect("an end");
    assert_eq!(status.code(), Some(0));

    let output = serve().stderr(Stdio::piped()).output().expect("an end");
    assert_eq!(output.status.code(), Some(78));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("node.toml:2"), "{text}");
}
