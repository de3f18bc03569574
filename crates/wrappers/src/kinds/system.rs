//! Metrics of the host: processors, memory, load, disks, network interfaces. Read from `/proc`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::{
    DescriptorError, Field, FieldType, Quality, StreamElement, StreamSchema, Timestamp, Value,
    check_name,
};
use nix::sys::statvfs::statvfs;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Interval, MissedTickBehavior};

use crate::clock::now;
use crate::{
    Batch, Delivery, Mark, Step, StreamDefinition, Wrapper, WrapperError, WrapperFile, WrapperKind,
    WrapperOpening,
};

/// Most interfaces and disks; reason: a host of containers has hundreds, of which few matter.
const KEYS_MAX: usize = 64;
/// Types of file systems on disks.
const DISKS: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "vfat"];

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "system",
    about: "metrics of the host: processors, memory, load, disks, network interfaces",
    delivery: Delivery {
        acknowledges: "never: it is a measurement",
        resumes: "the next measurement",
        may_double: "no",
        may_miss: "measurements while the node is down",
        back_pressure: "nothing is measured while storing lags",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `system`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The first part of the names of its streams: `PREFIX.cpu`, `PREFIX.memory`, `PREFIX.load`,
    /// `PREFIX.disk`, `PREFIX.network`. Default: the name of the wrapper.
    prefix: Option<String>,
    /// Time between two measurements. Default: 10.
    #[serde(default = "period_default")]
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    period_s: u64,
}

fn period_default() -> u64 {
    10
}

fn settings(file: &WrapperFile) -> Result<(String, u64), DescriptorError> {
    let settings: Settings = file.settings()?;
    if !file.keys.streams.is_empty() || file.keys.format.is_some() {
        let message = "the kind `system` has streams of its own".to_owned();
        return Err(file.fault("stream", message, None));
    }
    if !(1..=86_400).contains(&settings.period_s) {
        let message = "it is not within 1 to 86400".to_owned();
        return Err(file.fault("period_s", message, None));
    }
    let name = file.name.replace('_', "-");
    let prefix = settings
        .prefix
        .unwrap_or_else(|| name.trim_matches('-').to_owned());
    check_name(&format!("{prefix}.network"))
        .map_err(|error| file.fault("prefix", error.to_string(), None))?;
    Ok((prefix, settings.period_s))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let (prefix, period_s) =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let mut tick = tokio::time::interval(Duration::from_secs(period_s));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = |what: &str, key: Option<&str>, fields: &[(&str, FieldType, &str)]| {
        let fields = fields.iter().map(|(name, field_type, unit)| Field {
            name: (*name).to_owned(),
            field_type: *field_type,
            unit: Some((*unit).to_owned()),
            observed_property: None,
            description: None,
        });
        let definition = StreamDefinition {
            schema: StreamSchema {
                fields: fields.collect(),
                key: key.map(str::to_owned),
            },
            level: opening.file.keys.level,
            description: None,
        };
        (format!("{prefix}.{what}").into(), Arc::new(definition))
    };
    use FieldType::{Double, Integer};
    Ok(Box::new(SystemWrapper {
        tick,
        processors: None,
        cpu: stream("cpu", None, &[("busy", Double, "%")]),
        memory: stream(
            "memory",
            None,
            &[("total", Integer, "By"), ("available", Integer, "By")],
        ),
        load: stream(
            "load",
            None,
            &[
                ("one", Double, "1"),
                ("five", Double, "1"),
                ("fifteen", Double, "1"),
            ],
        ),
        disk: stream(
            "disk",
            Some("mount point"),
            &[("total", Integer, "By"), ("available", Integer, "By")],
        ),
        network: stream(
            "network",
            Some("interface"),
            &[("received", Integer, "By"), ("sent", Integer, "By")],
        ),
    }))
}

type Stream = (Arc<str>, Arc<StreamDefinition>);

struct SystemWrapper {
    tick: Interval,
    /// The processors' times at the last measurement.
    processors: Option<Processors>,
    cpu: Stream,
    memory: Stream,
    load: Stream,
    disk: Stream,
    network: Stream,
}

impl Wrapper for SystemWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                self.tick.tick().await;
                let batch = self.measure(now());
                if batch.elements() > 0 {
                    return Ok(batch);
                }
            }
        })
    }
}

impl SystemWrapper {
    fn measure(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch {
            mark: Mark::default(),
            ..Batch::default()
        };
        let mut push = |stream: &Stream, key: Option<String>, values: Vec<Value>| {
            let element = StreamElement {
                position: Default::default(),
                source_time: now,
                receive_time: now,
                key,
                values,
                quality: Quality::Good,
                origin: None,
            };
            batch.push(&stream.0, &stream.1, element);
        };
        let processors = read("/proc/stat").as_deref().and_then(processors);
        if let Some((before, after)) = self.processors.zip(processors)
            && let Some(busy) = after.busy_since(before)
        {
            push(&self.cpu, None, vec![Value::Double(busy)]);
        }
        self.processors = processors;
        if let Some((total, available)) = read("/proc/meminfo").as_deref().and_then(memory) {
            let values = vec![Value::Integer(total), Value::Integer(available)];
            push(&self.memory, None, values);
        }
        if let Some(load) = read("/proc/loadavg").as_deref().and_then(load) {
            push(&self.load, None, load.map(Value::Double).to_vec());
        }
        let mounts = read("/proc/self/mounts").unwrap_or_default();
        for (mount, total, available) in disks(&mounts) {
            let values = vec![Value::Integer(total), Value::Integer(available)];
            push(&self.disk, Some(mount), values);
        }
        let interfaces = interfaces(&read("/proc/net/dev").unwrap_or_default());
        for (interface, (received, sent)) in interfaces {
            let values = vec![Value::Integer(received), Value::Integer(sent)];
            push(&self.network, Some(interface), values);
        }
        batch
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Times of all processors, in ticks since the start of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Processors {
    all: u64,
    idle: u64,
}

impl Processors {
    /// The busy share of the time since, in percent; `None` if no time has passed.
    fn busy_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        Some(100.0 * (all - idle) as f64 / all as f64)
    }
}

/// The line of all processors (`proc_stat(5)`).
fn processors(text: &str) -> Option<Processors> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line
        .split_whitespace()
        .map_while(|it| it.parse().ok())
        .collect();
    // Guest time is part of user time.
    let all = times
        .iter()
        .take(8)
        .fold(0_u64, |sum, time| sum.saturating_add(*time));
    let idle = times.get(3)?.saturating_add(*times.get(4).unwrap_or(&0));
    Some(Processors { all, idle })
}

/// Total and available memory in bytes (`proc_meminfo(5)`).
fn memory(text: &str) -> Option<(i64, i64)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: i64 = line.split_whitespace().next()?.parse().ok()?;
        kibibytes.checked_mul(1_024)
    };
    Some((value("MemTotal:")?, value("MemAvailable:")?))
}

/// The load of one, five and fifteen minutes (`proc_loadavg(5)`).
fn load(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split_whitespace().map_while(|it| it.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// Mount points of disks with their total and available bytes.
fn disks(mounts: &str) -> Vec<(String, i64, i64)> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for line in mounts.lines() {
        let mut words = line.split_whitespace();
        let (Some(device), Some(mount), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if DISKS.contains(&kind) && found.len() < KEYS_MAX {
            // A device that is mounted twice is one disk.
            found.entry(device).or_insert_with(|| unescaped(mount));
        }
    }
    let space = |mount: String| {
        let found = statvfs(Path::new(&mount)).ok()?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(found.fragment_size())).ok();
        let (total, available) = (bytes(found.blocks())?, bytes(found.blocks_available())?);
        Some((mount, total, available))
    };
    found.into_values().filter_map(space).collect()
}

/// A path of `/proc/self/mounts`, in which blanks and backslashes are octal numbers (`getmntent(3)`).
fn unescaped(path: &str) -> String {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let replaced = codes.iter();
    replaced.fold(path.to_owned(), |path, (code, text)| {
        path.replace(code, text)
    })
}

/// Bytes received and sent on each interface since the start of the host (`proc_pid_net(5)`).
fn interfaces(text: &str) -> BTreeMap<String, (i64, i64)> {
    let counters = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let mut counters = counters.split_whitespace();
        let received = counters.next()?.parse().ok()?;
        let sent = counters.nth(7)?.parse().ok()?;
        Some((name.trim().to_owned(), (received, sent)))
    };
    text.lines()
        .skip(2)
        .filter_map(counters)
        .take(KEYS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_disk_whose_mount_point_has_blanks_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path().join("a b\\040");
        std::fs::create_dir(&mount).unwrap();
        let mount = mount.to_str().unwrap();
        let escaped = mount.replace('\\', "\\134").replace(' ', "\\040");
        let found = disks(&format!(
            "/dev/x {escaped} ext4 rw 0 0\n/dev/y /gone ext4 rw 0 0\n"
        ));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, mount);
    }

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let stat = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3 4\n";
        let before = processors(stat).unwrap();
        assert_eq!(
            before,
            Processors {
                all: 1_000,
                idle: 850
            }
        );
        let after = processors("cpu  150 0 75 825 50 0 0 0 0 0\n").unwrap();
        assert_eq!(after.busy_since(before), Some(75.0));
        assert_eq!(after.busy_since(after), None);
        assert_eq!(before.busy_since(after), None, "the host was started again");
        let text = "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n";
        assert_eq!(memory(text), Some((2_097_152, 1_048_576)));
        assert_eq!(load("0.5 1.25 2.00 1/100 42\n"), Some([0.5, 1.25, 2.0]));
        let text = "Inter-| x\n face | y\n  lo: 7 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n";
        assert_eq!(
            interfaces(text),
            BTreeMap::from([("lo".to_owned(), (7, 9))])
        );
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[ -~\n:]{0,200}") {
            processors(&format!("cpu {text}"));
            memory(&format!("MemTotal: {text}"));
            load(&text);
            interfaces(&text);
            disks(&text);
        }
    }
}
