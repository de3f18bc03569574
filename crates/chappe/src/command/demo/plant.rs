//! The device processes of the demonstration.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::process::{Child, ChildStdin, Command};

use crate::output::{self, Failure};

/// Time for a device to send Bye.
const BYE_PATIENCE: Duration = Duration::from_secs(3);

/// The devices, each with its own loopback address: a unicast datagram to a shared port reaches only
/// one socket.
pub(crate) struct Plant {
    devices: Vec<(String, Child)>,
    /// Standard inputs of the devices. If this process is killed, the system closes them and the devices
    /// end.
    _inputs: Vec<ChildStdin>,
}

impl Plant {
    /// Starts a process for each description.
    pub(crate) fn start(descriptions: &[PathBuf], json: bool) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let (mut devices, mut inputs) = (Vec::new(), Vec::new());
        for (index, description) in descriptions.iter().enumerate() {
            let last = u8::try_from(index + 1)
                .map_err(|_| Failure::new("too many devices").coded("argument_invalid"))?;
            let address = Ipv4Addr::new(127, 0, 1, last);
            let mut child = Command::new(&program)
                .args(["device", "run", "--end-with-input"])
                .arg(description)
                .args([
                    "--address",
                    &address.to_string(),
                    "--announce-within",
                    "100ms",
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            // `Child::wait` would close the input.
            inputs.extend(child.stdin.take());
            let name = description
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if json {
                output::json(&json!({
                    "event": "device", "name": name, "pid": child.id(), "address": address,
                    "file": description,
                }));
            }
            devices.push((name, child));
        }
        Ok(Self {
            devices,
            _inputs: inputs,
        })
    }

    /// The number of devices.
    pub(crate) fn len(&self) -> usize {
        self.devices.len()
    }

    /// Reports each device that ends; returns after the last one.
    pub(crate) async fn watch(&mut self, json: bool) {
        while !self.devices.is_empty() {
            let ended = std::future::poll_fn(|context| {
                for (index, (_, child)) in self.devices.iter_mut().enumerate() {
                    let waiting = std::pin::pin!(child.wait());
                    if let std::task::Poll::Ready(status) = waiting.poll(context) {
                        return std::task::Poll::Ready((index, status));
                    }
                }
                std::task::Poll::Pending
            });
            let (index, status) = ended.await;
            let (name, _) = self.devices.remove(index);
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            if json {
                output::json(&json!({ "event": "device_ended", "name": name, "status": status }));
            } else {
                output::line(format_args!("device {name} ended: {status}"));
            }
        }
    }

    /// Terminates every device, and kills those that do not end in time.
    pub(crate) async fn stop(mut self) {
        for (_, child) in &self.devices {
            if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        let all = async {
            for (_, child) in &mut self.devices {
                let _ = child.wait().await;
            }
        };
        if tokio::time::timeout(BYE_PATIENCE, all).await.is_err() {
            for (_, child) in &mut self.devices {
                let _ = child.kill().await;
            }
        }
    }
}
