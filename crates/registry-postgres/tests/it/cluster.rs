//! A server of PostgreSQL for one test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chappe_registry_postgres::Options;

pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    programs: PathBuf,
    server: Option<Child>,
}

/// The directory of the server's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

impl Cluster {
    /// A new server; `None`, and a line on stderr, without its programs.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let mut cluster = Self {
            directory,
            programs,
            server: None,
        };
        // The server refuses to run as root.
        if is_root() {
            let owned = Command::new("chown")
                .arg("nobody")
                .arg(cluster.path())
                .status();
            assert!(owned.unwrap().success());
        }
        let made = cluster
            .command("initdb")
            .args([
                "--auth=trust",
                "--username=chappe",
                "--encoding=UTF8",
                "--pgdata",
            ])
            .arg(cluster.data())
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        cluster.run();
        Some(cluster)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// A program, as a user who is not root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir(self.path());
        command
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn run(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.server.is_none() {
            assert!(Instant::now() < end, "the server does not start");
            let mut server = self
                .command("postgres")
                .arg("-D")
                .arg(self.data())
                .arg("-k")
                .arg(self.path())
                .args(["-c", "listen_addresses="])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            loop {
                if server.try_wait().unwrap().is_some() {
                    // Processes of the one before still end.
                    std::thread::sleep(Duration::from_millis(50));
                    break;
                }
                if self.try_sql("SELECT 1").is_some() {
                    self.server = Some(server);
                    break;
                }
                assert!(Instant::now() < end, "the server does not answer");
                // It needs the processor to start.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Kills the server with all its processes, as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let first = server.id();
            signal("STOP", &[first]);
            signal("KILL", &children_of(first));
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    pub(crate) fn options(&self) -> Options {
        let host = self.path().display();
        Options {
            url: format!("postgres://chappe@/postgres?host={host}"),
            password: None,
            authorities: None,
        }
    }

    fn psql(&self, sql: &str) -> Command {
        let mut command = self.command("psql");
        command.arg("-h").arg(self.path()).args([
            "-U", "chappe", "-d", "postgres", "-X", "-q", "-A", "-t", "-c", sql,
        ]);
        command
    }

    fn try_sql(&self, sql: &str) -> Option<String> {
        let output = self.psql(sql).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.trim().to_owned())
    }

    /// The answer of a statement.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap()
    }

    /// The durations of transactions that insert a row of so many bytes.
    pub(crate) fn bare(&self, count: usize, bytes: usize) -> Vec<Duration> {
        self.sql("CREATE TABLE bare (at bigint PRIMARY KEY, body bytea)");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let url = self.options().url;
            let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            let driver = tokio::spawn(connection);
            let insert = client
                .prepare("INSERT INTO bare VALUES ($1, $2)")
                .await
                .unwrap();
            let mut times = Vec::new();
            for at in 0..count {
                let begun = Instant::now();
                let body = vec![7_u8; bytes];
                client
                    .execute(&insert, &[&(at as i64), &body])
                    .await
                    .unwrap();
                times.push(begun.elapsed());
            }
            driver.abort();
            times
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").unwrap();
    std::os::unix::fs::MetadataExt::uid(&own) == 0
}

fn signal(name: &str, processes: &[u32]) {
    if !processes.is_empty() {
        let processes = processes.iter().map(u32::to_string);
        // One of them may have ended.
        let _ = Command::new("kill")
            .arg(format!("-{name}"))
            .args(processes)
            .stderr(Stdio::null())
            .status();
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |id: &u32| {
        // The name in parentheses may have spaces.
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let rest = text.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    };
    ids.filter(is_child).collect()
}
