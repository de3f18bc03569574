//! Checks of the host: interfaces, the discovery port, containers, buffers, clock, disk.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use chappe_transport::{FragmentMemory, RECEIVE_BUFFER_BYTES, ReceiveBuffer};

use super::{Check, State};

/// Port 3702 in the notation of /proc.
const PORT_HEX: &str = ":0E76";
/// A clock before 2026-01-01 is not set.
const CLOCK_FLOOR_S: u64 = 1_767_225_600;
/// Below this free space a log soon stops.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// Number of measured syncs.
const SYNCS: usize = 20;

/// Each interface, with the reason if it is unused.
pub(crate) fn interfaces(found: &[chappe_transport::Interface]) -> Vec<Check> {
    let check = |interface: &chappe_transport::Interface| {
        let name = format!("interface {}", interface.name);
        let addresses: Vec<_> = interface
            .addresses
            .iter()
            .map(|(a, _)| a.to_string())
            .collect();
        if interface.usable() {
            return Check::new(name, State::Ok, addresses.join(", "));
        }
        let (why, hint) = if !interface.up {
            ("it is down", format!("ip link set {} up", interface.name))
        } else if addresses.is_empty() {
            (
                "it has no address",
                format!("ip address add ADDRESS/LENGTH dev {}", interface.name),
            )
        } else {
            (
                "it carries no multicast",
                format!("ip link set {} multicast on", interface.name),
            )
        };
        Check::new(name, State::Skipped, format!("not used: {why}")).hint(hint)
    };
    found.iter().map(check).collect()
}

/// The programs that hold UDP port 3702.
pub(crate) fn discovery_port() -> Check {
    let mut inodes = Vec::new();
    for file in ["/proc/net/udp", "/proc/net/udp6"] {
        let table = fs::read_to_string(file).unwrap_or_default();
        let lines = table
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        inodes.extend(
            lines
                .filter(|cells| cells.get(1).is_some_and(|local| local.ends_with(PORT_HEX)))
                .filter_map(|cells| cells.get(9).map(|inode| (*inode).to_owned())),
        );
    }
    let name = "port 3702";
    if inodes.is_empty() {
        return Check::new(name, State::Ok, "free");
    }
    let holders = holders(&inodes);
    let own = std::process::id();
    let others: Vec<_> = holders.iter().filter(|(pid, _)| *pid != own).collect();
    if others.is_empty() && !holders.is_empty() {
        return Check::new(name, State::Ok, "free, except for this command");
    }
    let others: Vec<_> = others
        .iter()
        .map(|(pid, command)| format!("{command} (pid {pid})"))
        .collect();
    let who = match others.is_empty() {
        true => "another user's program".into(),
        false => others.join(", "),
    };
    Check::new(name, State::Ok, format!("shared with {who}")).hint(
        "multicast reaches all of them, unicast only one: give each device on a host its own address",
    )
}

/// Programs that hold one of these sockets, as far as this user may see.
fn holders(inodes: &[String]) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let links = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let holds = links
            .filter_map(|link| fs::read_link(link.path()).ok())
            .any(|target| {
                let target = target.to_string_lossy();
                inodes
                    .iter()
                    .any(|inode| *target == format!("socket:[{inode}]"))
            });
        if holds {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push((pid, command.trim().to_owned()));
        }
    }
    found
}

/// Looks for a container's bridge between this program and the network.
pub(crate) fn container() -> Check {
    let inside = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    let interfaces = chappe_transport::interfaces().unwrap_or_default();
    let bridges: Vec<_> = interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .filter(|name| {
            ["docker", "br-", "podman", "cni", "lxcbr", "virbr"]
                .iter()
                .any(|p| name.starts_with(p))
        })
        .collect();
    let name = "container";
    if inside {
        let check = Check::new(
            name,
            State::Warning,
            "this is a container; its bridge passes no multicast",
        );
        return check
            .hint("run it with the host's network (--network host), or name devices with --host");
    }
    if bridges.is_empty() {
        return Check::new(name, State::Ok, "no container and no bridge of containers");
    }
    let detail = format!("bridges of containers: {}", bridges.join(", "));
    Check::new(name, State::Ok, detail)
        .hint("discovery finds devices in containers only on the host's network (--network host)")
}

/// The receive buffer that the kernel grants.
pub(crate) fn receive_buffers() -> Check {
    let name = "receive buffers";
    match ReceiveBuffer::ask(RECEIVE_BUFFER_BYTES) {
        Ok(buffer) => match buffer.complaint() {
            None => {
                let given = buffer.given_bytes;
                Check::new(name, State::Ok, format!("a socket gets {given} bytes"))
            }
            Some(text) => Check::new(name, State::Warning, text).hint(buffer.remedy()),
        },
        Err(error) => Check::new(name, State::Skipped, format!("no socket: {error}")),
    }
}

/// Kernel memory for fragments of large datagrams. Only DDS sends such, so a low limit is no warning.
pub(crate) fn fragment_memory() -> Check {
    let name = "memory for fragments";
    let Some(memory) = FragmentMemory::read() else {
        return Check::new(name, State::Skipped, "this system does not report it");
    };
    let detail = format!("{} KiB", memory.limit_bytes >> 10);
    let check = Check::new(name, State::Ok, detail);
    match memory.complaint() {
        None => check,
        Some(_) => check.hint(format!(
            "for DDS where frames are lost: {}",
            memory.remedy()
        )),
    }
}

/// Checks that the clock is plausible and synchronized.
pub(crate) fn clock() -> Check {
    let name = "clock";
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    if seconds < CLOCK_FLOOR_S {
        let check = Check::new(name, State::Failed, "it shows a time before 2026");
        return check.hint("set it, or run systemd-timesyncd, chrony or ntpd");
    }
    let traces = [
        "/run/systemd/timesync/synchronized",
        "/run/chrony",
        "/var/lib/ntp/ntp.drift",
    ];
    if traces.iter().any(|path| Path::new(path).exists()) {
        return Check::new(name, State::Ok, "set, and synchronized by a time service");
    }
    Check::new(name, State::Warning, "set, without a time service")
        .hint("source times of several nodes compare only with synchronized clocks")
}

/// Checks that the directory is writable and has room, and measures its syncs.
pub(crate) fn disk(directory: &Path) -> Check {
    let name = format!("disk at {}", directory.display());
    let failed = |error: &dyn std::fmt::Display| {
        Check::new(&name, State::Failed, error.to_string())
            .hint("make the directory writable for this user, or name another with --data")
    };
    let free = match nix::sys::statvfs::statvfs(directory) {
        Ok(stat) => stat.blocks_available() * stat.fragment_size(),
        Err(error) => return failed(&error),
    };
    let path = directory.join(format!(".chappe-doctor-{}", std::process::id()));
    let measured = sync_times(&path);
    let _ = fs::remove_file(&path);
    let times = match measured {
        Ok(times) => times,
        Err(error) => return failed(&error),
    };
    let median_ms = times[times.len() / 2];
    let worst_ms = times[times.len() - 1];
    let detail = format!(
        "{} MiB free, a sync takes {median_ms:.2} ms, at most {worst_ms:.2} ms",
        free >> 20
    );
    if free < FREE_BYTES_MIN {
        return Check::new(name, State::Warning, detail)
            .hint("free some space: a full disk stops the log");
    }
    if median_ms > 20.0 {
        let check = Check::new(name, State::Warning, detail);
        return check
            .hint("level \"power\" waits for each sync: use a disk with a power-protected cache");
    }
    Check::new(name, State::Ok, detail)
}

/// Sorted times in milliseconds of appends of 4 KiB with fdatasync.
fn sync_times(path: &Path) -> std::io::Result<Vec<f64>> {
    let mut file = fs::OpenOptions::new()
        .create_new(true)
        .append(true)
        .open(path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
