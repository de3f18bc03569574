//! The peer PostgreSQL, with its defaults: every commit is on the disk before it is answered.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown, getuid};

use super::ROWS;

/// Time that the server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server in a folder of its own; the reason why there is none is a text.
pub(crate) struct Postgres {
    server: Child,
    folder: PathBuf,
    user: Option<User>,
}

impl Postgres {
    pub(crate) fn start(parent: &Path) -> Result<Self, String> {
        // It refuses to run as root.
        let user = match getuid().is_root() {
            false => None,
            true => {
                let user = User::from_name("postgres").ok().flatten();
                Some(user.ok_or("there is no user postgres, and PostgreSQL does not run as root")?)
            }
        };
        let folder = parent.join("postgres");
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        if let Some(user) = &user {
            chown(&folder, Some(user.uid), Some(user.gid)).map_err(|error| error.to_string())?;
        }
        let data = folder.join("data");
        let mut make = command("initdb", &folder, user.as_ref());
        make.args(["--auth=trust", "--username=postgres", "-D"])
            .arg(&data);
        output(make)?;
        let mut server = command("postgres", &folder, user.as_ref());
        server.arg("-D").arg(&data).arg("-k").arg(&folder);
        server.args(["-c", "listen_addresses=", "-c", "max_connections=100"]);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let server = server
            .spawn()
            .map_err(|error| format!("postgres: {error}"))?;
        let peer = Self {
            server,
            folder,
            user,
        };
        let started = Instant::now();
        while let Err(error) = peer.statement("select 1") {
            if started.elapsed() > START_TIMEOUT {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(200));
        }
        peer.statement("create table element (time timestamptz, temperature float8, people int8)")?;
        Ok(peer)
    }

    fn client(&self, program: &str) -> Command {
        let mut client = command(program, &self.folder, self.user.as_ref());
        client.arg("-h").arg(&self.folder).args(["-U", "postgres"]);
        client
    }

    /// Runs statements, or a command of psql.
    pub(crate) fn statement(&self, text: &str) -> Result<String, String> {
        let mut psql = self.client("psql");
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c", text]);
        output(psql)
    }

    /// The single value of a query, as text.
    #[cfg(feature = "postgres")]
    pub(crate) fn value(&self, query: &str) -> Result<String, String> {
        let mut psql = self.client("psql");
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", query]);
        Ok(output(psql)?.trim().to_owned())
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// Single inserts per second by so many clients.
    pub(super) fn inserts(&self, clients: usize, time: Duration) -> Result<f64, String> {
        let script = "insert into element values (now(), 21.25, 7);\n";
        let script = self.file("insert.sql", script)?;
        let mut bench = self.client("pgbench");
        bench.args(["-n", "-M", "prepared", "-c", &clients.to_string()]);
        bench.args(["-j", &clients.min(2).to_string()]);
        bench
            .args(["-T", &time.as_secs().to_string(), "-f"])
            .arg(script);
        let text = output(bench)?;
        let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = line.and_then(|line| line.split(' ').next()?.parse().ok());
        rate.ok_or_else(|| format!("pgbench prints no rate: {text}"))
    }

    /// The folder of its socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Milliseconds of a transaction of one client that stores so many bytes: the mean of `count`.
    pub(crate) fn transaction_ms(&self, bytes: usize, count: usize) -> Result<f64, String> {
        let columns = "number bigserial primary key, record bytea";
        self.statement(&format!("create table if not exists floor ({columns})"))?;
        // Bytes that do not compress.
        let mut random = fastrand::Rng::with_seed(1);
        let digits: String = (0..2 * bytes).map(|_| random.digit(16)).collect();
        let script = format!("insert into floor (record) values ('\\x{digits}');\n");
        let script = self.file("floor.sql", &script)?;
        let mut bench = self.client("pgbench");
        bench.args([
            "-n",
            "-M",
            "prepared",
            "-c",
            "1",
            "-t",
            &count.to_string(),
            "-f",
        ]);
        bench.arg(script);
        let text = output(bench)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("latency average = "));
        let time = line.and_then(|line| line.split(' ').next()?.parse().ok());
        time.ok_or_else(|| format!("pgbench prints no latency: {text}"))
    }

    /// Rows per second of one `COPY`.
    pub(super) fn copy(&self, rows: &str) -> Result<f64, String> {
        let path = self.file("rows.csv", rows)?;
        let start = Instant::now();
        self.statement(&format!("\\copy element from '{}' csv", path.display()))?;
        Ok(ROWS as f64 / start.elapsed().as_secs_f64())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let id = i32::try_from(self.server.id()).unwrap_or(0);
        if id > 0 {
            // SIGQUIT is its immediate shutdown: the folder is removed anyway.
            let _ = kill(Pid::from_raw(id), Signal::SIGQUIT);
        }
        let _ = self.server.wait();
    }
}

fn command(program: &str, folder: &Path, user: Option<&User>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

fn output(mut command: Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program}: {error}"),
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            let text: String = text.trim().chars().take(200).collect();
            Err(format!("{program} fails: {text}"))
        }
    }
}
